// A page in strict mode that shows one of several sessions. `sessions` in the address has their ids.
import { TurnlogProvider, useClient, useSession } from "@turnlog/react";
import { StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);
const sessions = (query.get("sessions") ?? "").split(",");

function Transcript({ session }: { session: string }) {
  const { messages, hasHistory } = useSession(session);
  const parts = messages.flatMap((message) => message.parts);
  return <ol data-complete={hasHistory}>{parts.map((part) => part.type === "text" && <li key={part.id}>{part.text}</li>)}</ol>;
}

function Page() {
  const [session, setSession] = useState<string | undefined>(sessions[0]);
  const client = useClient();
  return (
    <main>
      {sessions.map((id, at) => (
        <input key={id} type="button" value={`Session ${at + 1}`} onClick={() => setSession(id)} />
      ))}
      <input type="button" value="None" onClick={() => setSession(undefined)} />
      <input type="button" value="Send" onClick={() => session && client.send("hello", { session })} />
      {session !== undefined && <Transcript session={session} />}
    </main>
  );
}

createRoot(document.querySelector("#root") as Element).render(
  <StrictMode>
    {/* the options are written inline: they are new in every render, and the stores stay */}
    <TurnlogProvider url={query.get("server") ?? ""} credentials="include" headers={{}} types={[]}>
      <Page />
    </TurnlogProvider>
  </StrictMode>,
);
