/**
 * Builds the entries of the chat from the parts of a snapshot: plain objects by their `kind`.
 *
 * `frame` has the fields that all entries of a holder share. What changes with most events is a literal of all fields:
 * that is several times as fast as a spread.
 */

/** Stop reasons that get no note. */
const QUIET_ENDS = new Set(["end_turn", "stop_sequence", "handoff"]);

/** The kinds of event parts by the name of the event; any other is an "event". */
const EVENT_KINDS = new Map([
  ["ui.action", "action"],
  ["ui.command", "command"],
]);

const keyOf = (part, frame) => `${frame.holder_id} ${part.id}`;

/** Return the entry of a person's message. */
export function buildUser(message) {
  const { id, seq, ts, turn, channel, author, speaker, target, state, parts } = message;
  const text = parts.find(({ type }) => type === "text")?.text ?? "";
  const files = parts.filter(({ type }) => type === "file");
  return {
    kind: "message",
    key: id,
    id,
    seq,
    ts,
    turn,
    channel,
    agent_id: null,
    agent_name: null,
    author,
    speaker,
    target,
    state,
    text,
    files,
  };
}

/** Return the entry of a part that is no call and no agent. */
export function buildPart(part, frame) {
  if (part.type === "text" || part.type === "thinking") return buildText(part, frame);
  return (BUILDERS[part.type] ?? buildPlain)(part, frame);
}

const buildText = (part, frame) => ({
  kind: part.type,
  key: keyOf(part, frame),
  id: part.id,
  seq: part.seq,
  ts: part.ts,
  turn: frame.turn,
  channel: frame.channel,
  agent_id: frame.agent_id,
  agent_name: frame.agent_name,
  text: part.text,
  state: part.state,
  aborted: part.aborted,
  citations: part.citations,
  speaker: part.speaker,
  redacted: part.redacted,
  part,
});

const baseFields = (part, frame) => ({
  key: keyOf(part, frame),
  id: part.id,
  seq: part.seq,
  ts: part.ts,
  turn: frame.turn,
  channel: frame.channel,
  agent_id: frame.agent_id,
  agent_name: frame.agent_name,
});

const buildPlain = (part, frame) => ({ ...part, ...baseFields(part, frame), kind: part.type, part });

const BUILDERS = {
  view: (part, frame) => ({
    kind: "view",
    key: keyOf(part, frame),
    id: part.id,
    seq: part.seq,
    ts: part.ts,
    turn: frame.turn,
    channel: frame.channel,
    agent_id: frame.agent_id,
    agent_name: frame.agent_name,
    view_id: part.view_id,
    event_id: part.event_id,
    view: part.view,
    updates: part.updates,
    state: part.state,
    actions: part.actions,
    over: part.state === "open" ? null : part.state,
  }),
  file: (part, frame) => ({ ...baseFields(part, frame), kind: "files", files: [part] }),
  error: (part, frame) => ({ ...baseFields(part, frame), kind: "error", payload: part.error }),
  event: (part, frame) => {
    const { name, payload, actor } = part;
    const isRestart = name === "process.start" && payload.process === "server";
    const kind = EVENT_KINDS.get(name) ?? (isRestart ? "restart" : "event");
    return { ...baseFields(part, frame), kind, type: name, payload, actor };
  },
};

/** Return the entry of an agent that no call around it has started. */
export const buildAgent = (part, frame, inside) => ({
  ...baseFields(part, frame),
  kind: "agent",
  agents: [part],
  child: part.agent_name,
  model: part.model,
  inside,
});

const NO_PARTS = [];
const NO_PERSON = { approval: null, awaited: null, question: null, input: null, answer: null, decision: null };

/** Return the entry of a call. `ofCall` are all its parts, `inside` the entries of its agents. */
export function buildCall(part, frame, ofCall, inside, isErrorShown) {
  const agents = ofCall.length === 1 ? NO_PARTS : ofCall.filter(({ type }) => type === "agent");
  const agent = agents.at(-1);
  const isOfAgents = agents.length === ofCall.length - 1; // the other part is the call
  const person = isOfAgents ? NO_PERSON : personFields(ofCall);
  const { state, result, error, images } = part;
  const hasResult = state === "done" || error != null;
  return {
    kind: "call",
    key: keyOf(part, frame),
    id: part.id,
    seq: part.seq,
    ts: part.ts,
    turn: frame.turn,
    channel: frame.channel,
    agent_id: frame.agent_id,
    agent_name: frame.agent_name,
    call_id: part.call_id,
    tool: part.tool,
    state,
    args: part.args,
    written: part.written,
    incomplete: part.incomplete,
    executor: part.executor,
    progress: part.progress,
    part,
    agents,
    child: agent?.agent_name ?? null,
    model: agent?.model ?? null,
    inside,
    approval: person.approval,
    awaited: person.awaited,
    question: person.question,
    input: person.input,
    answer: person.answer,
    decision: person.decision,
    result: hasResult ? { ok: state === "done", result, error, images } : null,
    error,
    images,
    hasWaiting: state === "waiting" || agents.some(hasWaiting),
    isErrorShown,
  };
}

/** What people were asked about a call and what they answered, from its questions and approvals. */
function personFields(parts) {
  const questions = parts.filter(({ type }) => type === "question");
  const approvals = parts.filter(({ type }) => type === "approval");
  const question = questions.at(-1) ?? null;
  const answered = questions.findLast(({ answer }) => answer !== null) ?? null;
  const decided = approvals.find(({ answer }) => answer !== null) ?? null;
  return {
    approval: approvals.findLast((each) => each.state === "open")?.request ?? null,
    awaited: question?.state === "open" ? { args: question.args, seq: question.seq } : null,
    question: question?.args ?? null,
    input: answered?.wants === "values" ? answered.answer.value : null,
    answer: answered && { actor: answered.answer.actor, ts: answered.answer.ts },
    decision: decided && { decision: decided.state, ...decided.answer },
  };
}

/** Whether an agent, or an agent inside it, waits for a person. */
const hasWaiting = ({ parts }) =>
  parts.some(
    (part) => (part.type === "call" && part.state === "waiting") || (part.type === "agent" && hasWaiting(part)),
  );

/** Whether something else says why a call failed: the end of a stopped agent, or an error inside the call. */
export function isErrorElsewhere({ error }, ending, ofCall) {
  if (error == null) return false;
  if (error.code === "CANCELLED" && ending?.stop_reason === "cancelled") return true;
  const says = (part) => part.type === "error" && error.message?.includes(part.error.message);
  return ofCall.some(({ type, parts }) => type === "agent" && parts.some(says));
}

/** Return the note of an agent's end; null if its error, its text or the card of its call says it. */
export function buildEnd({ id, type, parts, ending, call_id }, { turn, channel, agent_id, agent_name }) {
  if (!ending || QUIET_ENDS.has(ending.stop_reason)) return null;
  const { stop_reason, reason, actor, seq, ts } = ending;
  const isRestart = reason === "interrupted";
  const hasAbortedText = parts.some(({ state, text }) => state === "aborted" && text !== undefined);
  if (parts.some((part) => part.type === "error") || (isRestart && hasAbortedText)) return null;
  if (stop_reason === "cancelled" && type === "agent" && call_id !== null) return null;
  const key = `${id} end`;
  return { kind: "end", key, id, seq, ts, turn, channel, agent_id, agent_name, stop_reason, by: actor, isRestart };
}
