// A chat whose token is state of the page: the button signs in again. `tokens` has every answer of the token function.
import { TurnlogProvider, useSession } from "@turnlog/react";
import { type SubmitEvent, useState } from "react";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);
const tokens: string[] = [];
Object.assign(globalThis, { tokens });

function Chat({ session }: { session: string }) {
  const { messages, send } = useSession(session);
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    void send(String(new FormData(event.currentTarget).get("text")));
    event.currentTarget.reset();
  };
  return (
    <>
      {messages.map((message) => (
        <article key={message.id} className={message.role}>
          {message.parts.map((part) => part.type === "text" && <p key={part.id}>{part.text}</p>)}
        </article>
      ))}
      <form onSubmit={submit}>
        <input name="text" />
      </form>
    </>
  );
}

function Page() {
  const [value, setValue] = useState("first");
  const token = () => {
    tokens.push(value);
    return value;
  };
  return (
    <TurnlogProvider url={query.get("server") ?? ""} token={token}>
      <Chat session={query.get("session") ?? ""} />
      <input type="button" value="Sign in again" onClick={() => setValue("second")} />
    </TurnlogProvider>
  );
}

createRoot(document.querySelector("#root") as Element).render(<Page />);
