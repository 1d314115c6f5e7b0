// The example with a token that the page asks for. `tokens` has every answer.
import { Client } from "@turnlog/client";
import { createRoot } from "react-dom/client";
import { App } from "./chat.js";

const query = new URLSearchParams(location.search);
const tokens: string[] = [];
Object.assign(globalThis, { tokens });

const token = async () => {
  const value = (await (await fetch("token.txt", { cache: "no-store" })).text()).trim();
  tokens.push(value);
  return value;
};

const client = new Client({ url: query.get("server") ?? "", token });
const session = query.get("session") ?? "";
createRoot(document.querySelector("#root") as Element).render(<App client={client} session={session} />);
