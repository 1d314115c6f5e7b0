// A chat that counts its renders. `renders` has the number for each component: "list", "message <n>", "<type> <n>".
import { Client } from "@turnlog/client";
import { TurnlogProvider, useMessage, useMessageIds, usePart, usePartIds, useSession } from "@turnlog/react";
import { memo } from "react";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);
const session = query.get("session") ?? "";
const renders: { [name: string]: number } = {};
const numbers = new Map<string, number>();

/** Number the components of one kind in the order of their first render. */
function numberOf(kind: string, id: string): string {
  const key = `${kind} ${id}`;
  if (!numbers.has(key)) numbers.set(key, [...numbers.keys()].filter((name) => name.startsWith(`${kind} `)).length + 1);
  return `${kind} ${numbers.get(key)}`;
}

function count(name: string): void {
  renders[name] = (renders[name] ?? 0) + 1;
}

const Part = memo(function Part({ message, id }: { message: string; id: string }) {
  const part = usePart(session, message, id);
  count(numberOf(part?.type ?? "none", id));
  return part?.type === "text" ? <p>{part.text}</p> : null;
});

const Message = memo(function Message({ id }: { id: string }) {
  count(numberOf("message", id));
  const role = useMessage(session, id, (message) => message.role);
  const parts = usePartIds(session, id);
  return (
    <div className={role}>
      {parts.map((part) => (
        <Part key={part} message={id} id={part} />
      ))}
    </div>
  );
});

function List() {
  count("list");
  return useMessageIds(session).map((id) => <Message key={id} id={id} />);
}

/** The control: a component that reads the whole session renders for every change. */
function Whole() {
  count("whole");
  const { messages } = useSession(session);
  return <output>{messages.length}</output>;
}

Object.assign(globalThis, { renders });
const client = new Client({ url: query.get("server") ?? "", credentials: "include" });
createRoot(document.querySelector("#root") as Element).render(
  <TurnlogProvider client={client}>
    <List />
    <Whole />
  </TurnlogProvider>,
);
