// The example on the HTML that a server has rendered.
import { Client } from "@turnlog/client";
import { hydrateRoot } from "react-dom/client";
import { App } from "./chat.js";

const query = new URLSearchParams(location.search);
const client = new Client({ url: query.get("server") ?? "", credentials: "include" });
const session = query.get("session") ?? "";
hydrateRoot(document.querySelector("#root") as Element, <App client={client} session={session} />);
