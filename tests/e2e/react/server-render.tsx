// Renders the example in Node and prints the HTML.
import { Client } from "@turnlog/client";
import { renderToString } from "react-dom/server";
import { App } from "./chat.js";

if ("document" in globalThis) throw new Error("expected no document");
const client = new Client({ url: "http://127.0.0.1:1/" });
console.log(renderToString(<App client={client} session="sess_1" />));
