// The recipes of docs/howto/react.md on one page. ?recipe= names one.
import { MessagePrimitive, ThreadPrimitive } from "@assistant-ui/react";
import { TurnlogProvider } from "@turnlog/react";
import { createRoot } from "react-dom/client";
import { Assistant } from "./howto-assistant.js";
import { Page } from "./howto-chat.js";
import { Messages } from "./howto-parts.js";

const query = new URLSearchParams(location.search);
const url = query.get("server") ?? "";
const session = query.get("session") ?? "";

const Message = () => <MessagePrimitive.Parts components={{ Text: ({ text }) => <p>{text}</p> }} />;
const Thread = () => (
  <Assistant session={session}>
    <ThreadPrimitive.Messages components={{ Message }} />
  </Assistant>
);

const RECIPES: { [name: string]: () => React.ReactNode } = {
  chat: () => <Page url={url} session={session} />,
  parts: () => <Messages session={session} />,
  assistant: Thread,
};

const Recipe = RECIPES[query.get("recipe") ?? ""] as () => React.ReactNode;
createRoot(document.querySelector("#root") as Element).render(
  <TurnlogProvider url={url} credentials="include">
    <Recipe />
  </TurnlogProvider>,
);
