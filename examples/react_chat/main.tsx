// The page: ?session= names the session, so that a reload and a second tab show the same one.
import { Client } from "@turnlog/client";
import { createRoot } from "react-dom/client";
import { App } from "./chat.js";

const query = new URLSearchParams(location.search);
const client = new Client({ url: query.get("server") ?? "http://127.0.0.1:8765/", credentials: "include" });
const session = query.get("session") ?? (await client.createSession());
query.set("session", session);
history.replaceState(null, "", `?${query}`);
createRoot(document.querySelector("#root") as Element).render(<App client={client} session={session} />);
