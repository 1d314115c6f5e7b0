// A page around the recipe: what a person sees and clicks.
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { Chat } from "./use-chat.jsx";

const { server, token, id } = Object.fromEntries(new URLSearchParams(location.search));
const api = `${server}/ai-sdk/desk/chat`;
const headers = { Authorization: `Bearer ${token}` };

function Tool({ part, answer }) {
  return (
    <div className="tool" data-state={part.state}>
      {part.toolName}: {JSON.stringify(part.output ?? part.input)}
      {part.state === "approval-requested" && (
        <>
          <button onClick={() => answer({ id: part.approval.id, approved: true })}>Approve</button>
          <button onClick={() => answer({ id: part.approval.id, approved: false })}>Deny</button>
        </>
      )}
    </div>
  );
}

function Page({ chat, stop }) {
  const [text, setText] = useState("");
  const send = (event) => {
    event.preventDefault();
    chat.sendMessage({ text });
    setText("");
  };
  return (
    <main data-status={chat.status}>
      {chat.messages.map((message) => (
        <div key={message.id} className={message.role}>
          {message.parts.map((part, index) => {
            if (part.type === "text") return <p key={index}>{part.text}</p>;
            if (part.type === "dynamic-tool") {
              return <Tool key={index} part={part} answer={chat.addToolApprovalResponse} />;
            }
            return null;
          })}
        </div>
      ))}
      {chat.error && <p className="error">{chat.error.message}</p>}
      <form onSubmit={send}>
        <input value={text} onChange={(event) => setText(event.target.value)} />
      </form>
      <button onClick={stop}>Stop</button>
    </main>
  );
}

const version = { "Turnlog-AI-SDK": "7" };
const messages = await (await fetch(`${api}/${id}`, { headers: { ...headers, ...version } })).json();
const root = createRoot(document.querySelector("#root"));
root.render(<Chat api={api} headers={headers} id={id} messages={messages} Page={Page} />);
