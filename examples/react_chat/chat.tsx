// A part that has not changed is the same object as before, so `memo` draws only the paragraph that the model writes.
import type { Client, Part } from "@turnlog/client";
import { type Session, TurnlogProvider, useSession } from "@turnlog/react";
import { memo, type SubmitEvent } from "react";

type Decide = Session["decide"];

const Parts = ({ parts, decide }: { parts: readonly Part[]; decide: Decide }) =>
  parts.map((part) => <PartView key={part.id} part={part} decide={decide} />);

const PartView = memo(function PartView({ part, decide }: { part: Part; decide: Decide }) {
  if (part.type === "text") return <p data-state={part.state}>{part.text}</p>;
  if (part.type === "call")
    return <code data-state={part.state}>{`${part.tool}: ${JSON.stringify(part.result)}`}</code>;
  if (part.type === "agent") return <Parts parts={part.parts} decide={decide} />;
  if (part.type !== "approval") return null;
  if (part.state !== "open") return <em>{`${part.tool}: ${part.state}`}</em>;
  return (
    <fieldset>
      <legend>{`May ${part.tool} run?`}</legend>
      <input type="button" value="Approve" onClick={() => decide(part, "approve")} />
      <input type="button" value="Deny" onClick={() => decide(part, "deny")} />
    </fieldset>
  );
});

function Chat({ session }: { session: string }) {
  const { messages, queue, status, connection, send, stop, retry, decide } = useSession(session);
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    send(String(new FormData(event.currentTarget).get("text"))).catch(() => {}); // it stays, and can be sent again
    event.currentTarget.reset();
  };
  return (
    <main data-status={status} data-connection={connection}>
      {[...messages, ...queue].map((message) => (
        <article key={message.id} className={message.role}>
          <Parts parts={message.parts} decide={decide} />
          {message.role === "user" && message.state === "failed" && (
            <input type="button" value="Not sent. Try again" onClick={() => retry(message.id)} />
          )}
        </article>
      ))}
      <form onSubmit={submit}>
        <input name="text" aria-label="Message" autoComplete="off" required />
        {status === "running" && <input type="button" value="Stop" onClick={() => stop()} />}
      </form>
    </main>
  );
}

export const App = ({ client, session }: { client: Client; session: string }) => (
  <TurnlogProvider client={client}>
    <Chat session={session} />
  </TurnlogProvider>
);
