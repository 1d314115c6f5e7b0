/**
 * The documents that events become (docs/protocol.md, section 9.5), the same as `turnlog.state.documents`.
 *
 * `Documents` keeps what can still change: replies of open agents, the team, the files. `apply` gives the
 * documents that an event changed, whole; of several with one id the last counts. Bodies are plain objects.
 */

import { isBlank } from "../shared/python-text.js";
import { visibleChannel } from "./event-text.js";

const CATEGORIES = {
  message: "transcript",
  "agent-identity": "identity",
  artifact: "knowledge",
  marker: "operational",
};
const MEMBER_STATUS = { alive: "alive", idle: "alive", shutdown: "sleeping" };

export class Documents {
  /** @internal by open agent and id */ replies = new Map();
  /** @internal by open agent: the ids by block */ blocks = new Map();
  /** @internal */ team = new Map();
  /** @internal */ files = new Map();

  /** Take one event into account; the documents that it changed. */
  apply(event) {
    const bodies = REDUCERS.get(event.type)?.(this, event) ?? [];
    return [...new Map(bodies)].map(([id, body]) => buildDocument(id, body));
  }
}

/** The document that an event makes by itself, or null. */
export const toDocument = (event) => new Documents().apply(event)[0] ?? null;

/** The documents of a session, by id. */
export function collectDocuments(events) {
  const fold = new Documents();
  return new Map(events.flatMap((event) => fold.apply(event)).map((document) => [document.id, document]));
}

function buildDocument(id, body) {
  const type = id.split(":", 1)[0].split("@", 1)[0];
  return { id, type, category: CATEGORIES[type], body: structuredClone(body) };
}

const documentId = (kind, name, channel) => (channel ? `${kind}@${channel}:${name}` : `${kind}:${name}`);

const withoutNulls = (body) => Object.fromEntries(Object.entries(body).filter(([, value]) => value != null));

/** Where a document comes from. */
const originFields = (event) =>
  withoutNulls({ createdAt: event.ts, seq: event.seq, turn: event.trace_id, channel: visibleChannel(event) });

function getOrCreate(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

function userMessage(_, event) {
  const { text, speaker, target } = event.payload;
  if (isBlank(text)) return [];
  const fields = {
    role: "user",
    speakerType: "human",
    speakerName: speaker ?? event.actor,
    targetAgent: target,
    content: [{ type: "text", text }],
  };
  return [
    [documentId("message", event.id, visibleChannel(event)), { ...originFields(event), ...withoutNulls(fields) }],
  ];
}

const REPLY_PARTS = {
  "assistant.message": ({ text }) => (isBlank(text) ? null : { type: "text", text }),
  "assistant.thinking": ({ text }) => (isBlank(text) ? null : { type: "thinking", thinking: text }),
  "tool.call": ({ call_id, tool, args }) => ({ type: "tool_use", id: call_id, name: tool, input: args }),
};

/** A block of a reply joins those that came before; what says nothing does not. */
function addReplyPart(fold, event) {
  const { agent_id, payload } = event;
  const content = REPLY_PARTS[event.type](payload);
  if (content === null) return [];
  const key = replyKey(event);
  const block = payload.block_id ?? event.id;
  let reply = { head: replyHead(event), parts: new Map() };
  if (agent_id) {
    reply = getOrCreate(
      getOrCreate(fold.replies, agent_id, () => new Map()),
      key,
      () => reply,
    );
    getOrCreate(fold.blocks, agent_id, () => new Map()).set(block, key);
  }
  reply.parts.set(block, content);
  return [[key, replyBody(reply)]];
}

const replyHead = (event) => ({
  ...originFields(event),
  ...withoutNulls({
    role: "assistant",
    speakerType: "agent",
    messageId: event.payload.message_id,
    speakerName: event.payload.speaker ?? event.agent_name,
  }),
});

/** The document that a block belongs to; a message of somebody of the team stands by itself. */
function replyKey(event) {
  const { agent_id, payload } = event;
  const whole = agent_id && !payload.speaker ? payload.message_id : null;
  return documentId("message", whole ? `${agent_id}:${whole}` : event.id, visibleChannel(event));
}

const replyBody = ({ head, parts }) => ({
  ...head,
  content: [...parts.values()],
  ...(parts.size > 0 ? {} : { retracted: true }),
});

function retractParts(fold, { agent_id, payload }) {
  const places = fold.blocks.get(agent_id) ?? new Map();
  const replies = fold.replies.get(agent_id);
  const keys = [];
  for (const block of payload.block_ids.filter((id) => places.has(id))) {
    keys.push(places.get(block));
    replies.get(places.get(block)).parts.delete(block);
    places.delete(block);
  }
  return keys.map((key) => [key, replyBody(replies.get(key))]);
}

/** What an agent said before it ended cannot change any more. */
function forgetAgent(fold, { agent_id }) {
  fold.replies.delete(agent_id);
  fold.blocks.delete(agent_id);
  return [];
}

/** An agent that joins again keeps the time of its birth; another one on its seat begins anew. */
function joinTeam(fold, event) {
  const { name, seat, color = "", color_name = "", gender = "man", face = {}, soul = "", created_at } = event.payload;
  const key = documentId("agent-identity", seat, visibleChannel(event));
  const before = fold.team.get(key);
  const looks = {
    name,
    gridPosition: seat,
    color,
    colorName: color_name,
    gender,
    individuationArtifact: soul,
    faceVariant: { eyes: face.eyes ?? "default", mouth: face.mouth ?? "default" },
    createdAt: before?.name === name ? before.createdAt : created_at || event.ts,
  };
  fold.team.set(key, { ...originFields(event), ...looks, ...aliveFields(event) });
  return [[key, fold.team.get(key)]];
}

const aliveFields = (event) => ({ status: "alive", lastAliveAt: event.ts, lastSessionId: event.session_id });

/** Who is listed has the status it says, everybody else sleeps. Nobody joins by being listed. */
function updateTeam(fold, event) {
  const channel = visibleChannel(event);
  const listed = new Map(
    event.payload.agents.map((one) => [documentId("agent-identity", one.seat, channel), MEMBER_STATUS[one.status]]),
  );
  const mine = [...fold.team].filter(([, body]) => (body.channel ?? null) === channel).map(([key]) => key);
  const awake = mine.filter((key) => listed.get(key) === "alive");
  for (const key of awake) Object.assign(fold.team.get(key), aliveFields(event));
  const others = mine.filter((key) => !awake.includes(key));
  return [...awake.map((key) => [key, fold.team.get(key)]), ...putToSleep(fold, others)];
}

/** Whoever was awake sleeps. */
function putToSleep(fold, keys) {
  const changed = keys.filter((key) => fold.team.get(key).status === "alive");
  for (const key of changed) fold.team.get(key).status = "sleeping";
  return changed.map((key) => [key, fold.team.get(key)]);
}

/** A file that was there keeps the time it was made, and what it said about itself until it says more. */
function writeFile(fold, event) {
  const { filename, path, size_bytes, is_new, meta } = event.payload;
  const key = documentId("artifact", path, visibleChannel(event));
  const before = is_new ? {} : (fold.files.get(key) ?? {});
  const wrote = {
    filename,
    path,
    sizeBytes: size_bytes,
    updatedAt: event.ts,
    meta: { ...before.meta, ...withoutNulls(meta ?? {}) },
  };
  fold.files.set(key, { ...originFields(event), ...before, ...wrote });
  return [[key, fold.files.get(key)]];
}

function processStart(_, event) {
  const { process, pid, model = null, demo_mode = false } = event.payload;
  const started = { kind: "session_start", process, pid, model, demoMode: demo_mode };
  return [[`marker:${event.id}`, { ...originFields(event), ...started }]];
}

/** The end of a process, with which everybody of the team falls asleep. */
function processEnd(fold, event) {
  const { process, reason, exit_code = null } = event.payload;
  const ended = { kind: "session_end", process, reason, exitCode: exit_code };
  return [[`marker:${event.id}`, { ...originFields(event), ...ended }], ...putToSleep(fold, [...fold.team.keys()])];
}

const REDUCERS = new Map([
  ["ui.message", userMessage],
  ...Object.keys(REPLY_PARTS).map((type) => [type, addReplyPart]),
  ["roster.join", joinTeam],
  ["roster.status", updateTeam],
  ["artifact.write", writeFile],
  ["process.start", processStart],
  ["process.end", processEnd],
  ["block.retract", retractParts],
  ["agent.end", forgetAgent],
]);
