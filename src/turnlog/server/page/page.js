// The plain page: one EventSource, every bubble drawn from events. No state is kept but what the log said.

const $ = (id) => document.getElementById(id);
const post = async (path, body) => {
  const response = await fetch(path, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
};

const blocks = new Map();   // block id -> element of its text
const calls = new Map();    // call id -> element of its card
const running = new Set();  // agents that have not ended
let last = -1;

const bubble = (kind, who, text) => {
  const box = document.createElement("div");
  box.className = kind;
  if (who) box.append(Object.assign(document.createElement("span"), { className: "who", textContent: who }));
  const body = Object.assign(document.createElement("span"), { textContent: text });
  box.append(body);
  const list = $("messages");
  const atBottom = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  list.append(box);
  if (atBottom) list.scrollTop = list.scrollHeight;
  return body;
};

const shown = { text: "", thinking: "thinking" };  // kinds of blocks that have a bubble, and its class
const level = (event) => (event.depth ? "child" : "agent");
const blockOf = (event, id, kind = "text") => {
  if (!blocks.has(id)) blocks.set(id, bubble(`${level(event)} ${shown[kind]}`, event.agent_name, ""));
  return blocks.get(id);
};
const ended = (event, payload, text) => {  // a call's block has no bubble: its card comes with the call
  if (blocks.has(payload.block_id)) blocks.get(payload.block_id).textContent = text;
};

const ask = (call) => {
  const card = bubble("tool", "waiting for you", call.args.question ?? call.tool);
  calls.set(call.call_id, card);
  for (const [label, result] of [["Yes", true], ["No", false]]) {
    const button = Object.assign(document.createElement("button"), { textContent: label, className: label.toLowerCase() });
    button.onclick = () => answer(call, result);
    card.parentElement.append(button);
  }
};
const answer = async (call, result) => {
  const payload = { call_id: call.call_id, tool: call.tool, ok: true, result, error: null };
  await report(() => post("api/events", { session, events: [{ type: "tool.result", payload }] }));
};
const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const answered = (result) => {
  const card = calls.get(result.call_id);
  if (!card) return;
  const box = card.parentElement;
  box.querySelectorAll("button").forEach((button) => button.remove());
  box.querySelector(".who").textContent = result.ok ? "answered" : result.error.code.toLowerCase();
  card.textContent += ` ${result.ok ? (result.result === true ? "Yes" : result.result === false ? "No" : JSON.stringify(result.result)) : ""}`;
};

const show = {
  "ui.message": (event, payload) => bubble("user", "", payload.text),
  "block.start": (event, payload) => { if (payload.kind in shown) blockOf(event, payload.block_id, payload.kind); },
  "block.delta": (event, payload) => { if (blocks.has(payload.block_id)) blocks.get(payload.block_id).textContent += payload.text; },
  "block.end": (event, payload) => { if (payload.status === "aborted") ended(event, payload, `${payload.text ?? ""} (stopped)`); },
  "block.retract": (event, payload) => payload.block_ids.forEach((id) => { blocks.get(id)?.parentElement.remove(); blocks.delete(id); }),
  "assistant.message": (event, payload) => { blockOf(event, payload.block_id ?? event.id).textContent = payload.text; },
  "assistant.thinking": (event, payload) => ended(event, payload, payload.text),
  "tool.call": (event, payload) => {
    if (payload.executor !== "frontend") calls.set(payload.call_id, bubble("tool", "tool", `${payload.tool} ${JSON.stringify(payload.args)}`));
  },
  "tool.await": (event, payload) => payload.calls.forEach(ask),
  "tool.result": (event, payload) => {
    const card = calls.get(payload.call_id);
    if (card?.parentElement.querySelector(".who").textContent === "tool") {
      card.textContent += ` → ${payload.ok ? said(payload.result) : payload.error.code}`;
    } else answered(payload);
  },
  "agent.start": (event) => running.add(event.agent_id),
  "agent.end": (event) => running.delete(event.agent_id),
  "session.error": (event, payload) => bubble("note", "error", payload.message),
};

const refreshState = async () => {
  const response = await fetch(`api/state?session=${session}`);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  $("state").textContent = JSON.stringify(answer.state, null, 2);
};

const receive = (message) => {
  const event = JSON.parse(message.data);
  if (event.seq <= last) return;
  last = event.seq;
  show[event.type]?.(event, event.payload);
  $("stop").disabled = running.size === 0;
  if (event.type !== "block.delta") {
    const row = document.createElement("li");
    row.append(`${event.seq} `, Object.assign(document.createElement("b"), { textContent: event.type }), ` ${event.agent_name ?? ""}`);
    $("events").prepend(row);
  }
  if (!/^(block|agent|ui|assistant|tool|process)\./.test(event.type)) refreshState();
};

const report = async (work) => {
  try { await work(); } catch (error) { bubble("note", "error", error.message); }
};

const forget = () => {
  blocks.clear(); calls.clear(); running.clear(); last = -1;
  $("messages").replaceChildren(); $("events").replaceChildren();
};

const connection = (text) => {
  $("connection").textContent = text;
  $("connection").className = text === "live" ? "live" : "";
};

$("compose").onsubmit = async (event) => {
  event.preventDefault();
  const message = $("text").value;
  if (!message.trim()) return;
  $("text").value = "";
  await report(() => post("api/send", { session, message }));
};
$("stop").onclick = () => report(() => post("api/stop", { session }));

let session = new URLSearchParams(location.search).get("session");
const follow = async () => {
  if (!session) {
    session = (await post("api/sessions", {})).session_id;
    history.replaceState(null, "", `?session=${session}`);
  }
  await refreshState();
  const source = new EventSource(`api/events?session=${session}`);
  source.onopen = () => connection("live");
  source.onerror = () => connection(source.readyState === EventSource.CLOSED ? "closed" : "reconnecting");
  source.onmessage = receive;
  source.addEventListener("reset", forget);
};
try { await follow(); } catch (error) { connection("not connected"); bubble("note", "error", error.message); }
