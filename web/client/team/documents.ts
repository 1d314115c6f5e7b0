/**
 * Folds events to documents (docs/protocol.md, section 9.5), the same as `turnlog.team.documents`.
 *
 * `Documents` keeps the documents that can still change: replies of open agents, the team, the files. `apply` returns
 * the documents that an event changed, complete; of several with one id the last counts. Bodies are plain objects.
 */

import { isBlank } from "../shared/python-text.js";
import type { Envelope, Json, Payloads } from "../events.js";
import { type AnyEvent, visibleChannel } from "../folds/event-text.js";

export interface SessionDocument {
  id: string;
  type: "message" | "agent-identity" | "artifact" | "marker";
  category: "transcript" | "identity" | "knowledge" | "operational";
  body: { [key: string]: Json };
}

type Body = { [key: string]: any };
type Change = [id: string, body: Body];

/** A reply: its first fields, and its parts by block. */
interface Reply {
  head: Body;
  parts: Map<string, Body>;
}

const CATEGORIES: { [Type in SessionDocument["type"]]: SessionDocument["category"] } = {
  message: "transcript",
  "agent-identity": "identity",
  artifact: "knowledge",
  marker: "operational",
};
const MEMBER_STATUS = { alive: "alive", idle: "alive", shutdown: "sleeping" };

/** Folds events to documents. */
export class Documents {
  /** @internal by open agent and id */ replies: Map<string, Map<string, Reply>> = new Map();
  /** @internal by open agent: the ids by block */ blocks: Map<string, Map<string, string>> = new Map();
  /** @internal */ team: Map<string, Body> = new Map();
  /** @internal */ files: Map<string, Body> = new Map();

  /** Apply one event; return the documents that it changed. */
  apply(event: AnyEvent): SessionDocument[] {
    const bodies = REDUCERS.get(event.type)?.(this, event) ?? [];
    return [...new Map(bodies)].map(([id, body]) => buildDocument(id, body));
  }
}

/** Return the document of a single event, or null. */
export const toDocument = (event: AnyEvent): SessionDocument | null => new Documents().apply(event)[0] ?? null;

/** Return the documents of a session by id. */
export function collectDocuments(events: AnyEvent[]): Map<string, SessionDocument> {
  const fold = new Documents();
  return new Map(events.flatMap((event) => fold.apply(event)).map((document) => [document.id, document]));
}

function buildDocument(id: string, body: Body): SessionDocument {
  const type = id.split(/[:@]/, 1)[0] as SessionDocument["type"];
  return { id, type, category: CATEGORIES[type], body: structuredClone(body) };
}

const documentId = (kind: string, name: string | number, channel: string | null): string =>
  channel ? `${kind}@${channel}:${name}` : `${kind}:${name}`;

const withoutNulls = (body: Body): Body =>
  Object.fromEntries(Object.entries(body).filter(([, value]) => value != null));

const originFields = (event: AnyEvent): Body =>
  withoutNulls({ createdAt: event.ts, seq: event.seq, turn: event.trace_id, channel: visibleChannel(event) });

function getOrCreate<Value>(map: Map<string, Value>, key: string, make: () => Value): Value {
  const value = map.get(key) ?? make();
  map.set(key, value);
  return value;
}

/** A reducer knows the payload of its type. */
type StoredEvent = Envelope<string, any>;

type Reducer = (fold: Documents, event: StoredEvent) => Change[];

function userMessage(_: Documents, event: StoredEvent): Change[] {
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

const REPLY_PARTS: { [type: string]: (payload: any) => Body | null } = {
  "assistant.message": ({ text }: Payloads["assistant.message"]) => (isBlank(text) ? null : { type: "text", text }),
  "assistant.thinking": ({ text }: Payloads["assistant.thinking"]) =>
    isBlank(text) ? null : { type: "thinking", thinking: text },
  "tool.call": ({ call_id, tool, args }: Payloads["tool.call"]) => ({
    type: "tool_use",
    id: call_id,
    name: tool,
    input: args,
  }),
};

/** Add a block to its reply, unless it is blank. */
function addReplyPart(fold: Documents, event: StoredEvent): Change[] {
  const { agent_id, payload } = event;
  const content = REPLY_PARTS[event.type]?.(payload) ?? null;
  if (content === null) return [];
  const key = replyKey(event);
  const block: string = payload.block_id ?? event.id;
  let reply: Reply = { head: replyHead(event), parts: new Map() };
  if (agent_id) {
    const first = reply;
    const replies = getOrCreate(fold.replies, agent_id, () => new Map<string, Reply>());
    reply = getOrCreate(replies, key, () => first);
    getOrCreate(fold.blocks, agent_id, () => new Map()).set(block, key);
  }
  reply.parts.set(block, content);
  return [[key, replyBody(reply)]];
}

const replyHead = (event: StoredEvent): Body => ({
  ...originFields(event),
  ...withoutNulls({
    role: "assistant",
    speakerType: "agent",
    messageId: event.payload.message_id,
    speakerName: event.payload.speaker ?? event.agent_name,
  }),
});

/** Return the id of a block's document. A message of a team member is a document of its own. */
function replyKey(event: StoredEvent): string {
  const { agent_id, payload } = event;
  const whole = agent_id && !payload.speaker ? payload.message_id : null;
  return documentId("message", whole ? `${agent_id}:${whole}` : event.id, visibleChannel(event));
}

const replyBody = ({ head, parts }: Reply): Body => ({
  ...head,
  content: [...parts.values()],
  ...(parts.size > 0 ? {} : { retracted: true }),
});

function retractParts(fold: Documents, { agent_id = "", payload }: StoredEvent): Change[] {
  const places = fold.blocks.get(agent_id);
  const replies = fold.replies.get(agent_id);
  const changed = new Map<string, Reply>();
  for (const block of payload.block_ids) {
    const key = places?.get(block);
    const reply = key === undefined ? undefined : replies?.get(key);
    if (key === undefined || reply === undefined) continue;
    reply.parts.delete(block);
    places?.delete(block);
    changed.set(key, reply);
  }
  return [...changed].map(([key, reply]) => [key, replyBody(reply)]);
}

/** Replies of an ended agent cannot change. */
function forgetAgent(fold: Documents, { agent_id = "" }: StoredEvent): Change[] {
  fold.replies.delete(agent_id);
  fold.blocks.delete(agent_id);
  return [];
}

/** A member that joins again keeps its creation time; another member on its seat gets a new one. */
function joinTeam(fold: Documents, event: StoredEvent): Change[] {
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
    createdAt: before?.name === name ? before?.createdAt : created_at || event.ts,
  };
  const body = { ...originFields(event), ...looks, ...aliveFields(event) };
  fold.team.set(key, body);
  return [[key, body]];
}

const aliveFields = (event: StoredEvent): Body => ({
  status: "alive",
  lastAliveAt: event.ts,
  lastSessionId: event.session_id,
});

/** Set the status of the listed members; all others sleep. A listed member that never joined is not added. */
function updateTeam(fold: Documents, event: StoredEvent): Change[] {
  const channel = visibleChannel(event);
  const { agents }: Payloads["roster.status"] = event.payload;
  const statuses = new Map(
    agents.map((one) => [documentId("agent-identity", one.seat, channel), MEMBER_STATUS[one.status]]),
  );
  const mine = [...fold.team].filter(([, body]) => (body.channel ?? null) === channel);
  const awake = mine.filter(([key]) => statuses.get(key) === "alive");
  for (const [, body] of awake) Object.assign(body, aliveFields(event));
  return [...awake, ...putToSleep(mine.filter((entry) => !awake.includes(entry)))];
}

function putToSleep(members: Change[]): Change[] {
  const changed = members.filter(([, body]) => body.status === "alive");
  for (const [, body] of changed) body.status = "sleeping";
  return changed;
}

/** An existing file keeps its creation time, and its metadata until new values come. */
function writeFile(fold: Documents, event: StoredEvent): Change[] {
  const { filename, path, size_bytes, is_new, meta } = event.payload;
  const key = documentId("artifact", path, visibleChannel(event));
  const before: Body = is_new ? {} : (fold.files.get(key) ?? {});
  const wrote = {
    filename,
    path,
    sizeBytes: size_bytes,
    updatedAt: event.ts,
    meta: { ...before.meta, ...withoutNulls(meta ?? {}) },
  };
  const body = { ...originFields(event), ...before, ...wrote };
  fold.files.set(key, body);
  return [[key, body]];
}

function processStart(_: Documents, event: StoredEvent): Change[] {
  const { process, pid, model = null, demo_mode = false } = event.payload;
  const started = { kind: "session_start", process, pid, model, demoMode: demo_mode };
  return [[`marker:${event.id}`, { ...originFields(event), ...started }]];
}

/** With its process the whole team falls asleep. */
function processEnd(fold: Documents, event: StoredEvent): Change[] {
  const { process, reason, exit_code = null } = event.payload;
  const ended = { kind: "session_end", process, reason, exitCode: exit_code };
  return [[`marker:${event.id}`, { ...originFields(event), ...ended }], ...putToSleep([...fold.team])];
}

const REDUCERS = new Map<string, Reducer>([
  ["ui.message", userMessage],
  ...Object.keys(REPLY_PARTS).map((type): [string, Reducer] => [type, addReplyPart]),
  ["roster.join", joinTeam],
  ["roster.status", updateTeam],
  ["artifact.write", writeFile],
  ["process.start", processStart],
  ["process.end", processEnd],
  ["block.retract", retractParts],
  ["agent.end", forgetAgent],
]);
