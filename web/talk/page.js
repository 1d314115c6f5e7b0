/** The page `/talk/{session}`: one `<turnlog-chat>` that fills it. The session is the last part of the address. */

import "./chat-element.js";
import { chooseLanguage } from "./texts.js";

const parts = location.pathname.split("/");
const language = chooseLanguage([new URLSearchParams(location.search).get("lang"), ...navigator.languages]);
document.documentElement.lang = language;

const chat = document.createElement("turnlog-chat");
Object.assign(chat, { session: decodeURIComponent(parts.at(-1)), server: "..", lang: language, headingLevel: 1 });
chat.addEventListener("turnlog-title", ({ detail }) => {
  document.title = detail || "Turnlog";
});
document.querySelector("main").append(chat);
