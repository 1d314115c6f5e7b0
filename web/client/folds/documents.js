/**
 * Folds events to documents (docs/protocol.md, section 9.5), the same as `turnlog.team.documents`.
 *
 * `Documents` keeps the documents that can still change: replies of open agents, the team, the files. `apply` returns
 * the documents that an event changed, complete; of several with one id the last counts. Bodies are plain objects.
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

  /** Apply one event; return the documents that it changed. */
  apply(event) {
    const bodies = REDUCERS.get(event.type)?.(this, event) ?? [];
    return [...new Map(bodies)].map(([id, body]) => buildDocument(id, body));
  }
}

/** Return the document of a single event, or null. */
export const toDocument = (event) => new Documents().apply(event)[0] ?? null;

/** Return the documents of a session by id. */
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

/** Add a block to its reply, unless it is blank. */
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

/** Return the id of a block's document. A message of a team member is a document of its own. */
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

/** Replies of an ended agent cannot change. */
function forgetAgent(fold, { agent_id }) {
  fold.replies.delete(agent_id);
  fold.blocks.delete(agent_id);
  return [];
}

/** A member that joins again keeps its creation time; another member on its seat gets a new one. */
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

/** Set the status of the listed members; all others sleep. A listed member that never joined is not added. */
function updateTeam(fold, event) {
  const channel = visibleChannel(event);
  const statuses = new Map(
    event.payload.agents.map((one) => [documentId("agent-identity", one.seat, channel), MEMBER_STATUS[one.status]]),
  );
  const mine = [...fold.team].filter(([, body]) => (body.channel ?? null) === channel).map(([key]) => key);
  const awake = mine.filter((key) => statuses.get(key) === "alive");
  for (const key of awake) Object.assign(fold.team.get(key), aliveFields(event));
  const others = mine.filter((key) => !awake.includes(key));
  return [...awake.map((key) => [key, fold.team.get(key)]), ...putToSleep(fold, others)];
}

function putToSleep(fold, keys) {
  const changed = keys.filter((key) => fold.team.get(key).status === "alive");
  for (const key of changed) fold.team.get(key).status = "sleeping";
  return changed.map((key) => [key, fold.team.get(key)]);
}

/** An existing file keeps its creation time, and its metadata until new values come. */
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

/** With its process the whole team falls asleep. */
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
