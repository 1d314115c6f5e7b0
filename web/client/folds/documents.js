/**
 * The documents that events become (docs/protocol.md, section 9.5), the same as `turnlog.state.documents`.
 *
 * `Documents` keeps what can still change: replies of open agents, the team, the files. `apply` gives the
 * documents that an event changed, whole; of several with one id the last counts. Bodies are plain objects.
 */

import { channelOf } from "./event-text.js";
import { isBlank } from "../shared/python-text.js";

const CATEGORIES = {
  message: "transcript",
  "agent-identity": "identity",
  artifact: "knowledge",
  marker: "operational",
};
const STATUS = { alive: "alive", idle: "alive", shutdown: "sleeping" };

export class Documents {
  /** @internal by open agent and id */ replies = new Map();
  /** @internal by open agent: the ids by block */ blocks = new Map();
  /** @internal */ team = new Map();
  /** @internal */ files = new Map();

  /** Take one event into account; the documents that it changed. */
  apply(event) {
    const bodies = STEPS.get(event.type)?.(this, event) ?? [];
    return [...new Map(bodies)].map(([id, body]) => documentOf(id, body));
  }
}

/** The document that an event makes by itself, or null. */
export const toDocument = (event) => new Documents().apply(event)[0] ?? null;

/** The documents of a session, by id. */
export function documents(events) {
  const kept = new Documents();
  return new Map(events.flatMap((event) => kept.apply(event)).map((made) => [made.id, made]));
}

function documentOf(id, body) {
  const type = id.split(":", 1)[0].split("@", 1)[0];
  return { id, type, category: CATEGORIES[type], body: structuredClone(body) };
}

const keyOf = (kind, name, channel) => (channel ? `${kind}@${channel}:${name}` : `${kind}:${name}`);

const present = (body) => Object.fromEntries(Object.entries(body).filter(([, value]) => value != null));

/** Where a document comes from. */
const made = (event) =>
  present({ createdAt: event.ts, seq: event.seq, turn: event.trace_id, channel: channelOf(event) });

function inside(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

function message(_, event) {
  const { text, speaker, target } = event.payload;
  if (isBlank(text)) return [];
  const said = {
    role: "user",
    speakerType: "human",
    speakerName: speaker ?? event.actor,
    targetAgent: target,
    content: [{ type: "text", text }],
  };
  return [[keyOf("message", event.id, channelOf(event)), { ...made(event), ...present(said) }]];
}

const PARTS = {
  "assistant.message": ({ text }) => (isBlank(text) ? null : { type: "text", text }),
  "assistant.thinking": ({ text }) => (isBlank(text) ? null : { type: "thinking", thinking: text }),
  "tool.call": ({ call_id, tool, args }) => ({ type: "tool_use", id: call_id, name: tool, input: args }),
};

/** A block of a reply joins those that came before; what says nothing does not. */
function part(kept, event) {
  const { agent_id, payload } = event;
  const made_of = PARTS[event.type](payload);
  if (made_of === null) return [];
  const key = replyKey(event);
  const block = payload.block_id ?? event.id;
  let reply = { head: replyHead(event), parts: new Map() };
  if (agent_id) {
    reply = inside(
      inside(kept.replies, agent_id, () => new Map()),
      key,
      () => reply,
    );
    inside(kept.blocks, agent_id, () => new Map()).set(block, key);
  }
  reply.parts.set(block, made_of);
  return [[key, bodyOf(reply)]];
}

const replyHead = (event) => ({
  ...made(event),
  ...present({
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
  return keyOf("message", whole ? `${agent_id}:${whole}` : event.id, channelOf(event));
}

const bodyOf = ({ head, parts }) => ({
  ...head,
  content: [...parts.values()],
  ...(parts.size > 0 ? {} : { retracted: true }),
});

function retract(kept, { agent_id, payload }) {
  const places = kept.blocks.get(agent_id) ?? new Map();
  const replies = kept.replies.get(agent_id);
  const keys = [];
  for (const block of payload.block_ids.filter((id) => places.has(id))) {
    keys.push(places.get(block));
    replies.get(places.get(block)).parts.delete(block);
    places.delete(block);
  }
  return keys.map((key) => [key, bodyOf(replies.get(key))]);
}

/** What an agent said before it ended cannot change any more. */
function end(kept, { agent_id }) {
  kept.replies.delete(agent_id);
  kept.blocks.delete(agent_id);
  return [];
}

/** An agent that joins again keeps the time of its birth; another one on its seat begins anew. */
function join(kept, event) {
  const { name, seat, color = "", color_name = "", gender = "man", face = {}, soul = "", created_at } = event.payload;
  const key = keyOf("agent-identity", seat, channelOf(event));
  const before = kept.team.get(key);
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
  kept.team.set(key, { ...made(event), ...looks, ...alive(event) });
  return [[key, kept.team.get(key)]];
}

const alive = (event) => ({ status: "alive", lastAliveAt: event.ts, lastSessionId: event.session_id });

/** Who is listed has the status it says, everybody else sleeps. Nobody joins by being listed. */
function status(kept, event) {
  const channel = channelOf(event);
  const listed = new Map(
    event.payload.agents.map((one) => [keyOf("agent-identity", one.seat, channel), STATUS[one.status]]),
  );
  const mine = [...kept.team].filter(([, body]) => (body.channel ?? null) === channel).map(([key]) => key);
  const awake = mine.filter((key) => listed.get(key) === "alive");
  for (const key of awake) Object.assign(kept.team.get(key), alive(event));
  const others = mine.filter((key) => !awake.includes(key));
  return [...awake.map((key) => [key, kept.team.get(key)]), ...asleep(kept, others)];
}

/** Whoever was awake sleeps. */
function asleep(kept, keys) {
  const changed = keys.filter((key) => kept.team.get(key).status === "alive");
  for (const key of changed) kept.team.get(key).status = "sleeping";
  return changed.map((key) => [key, kept.team.get(key)]);
}

/** A file that was there keeps the time it was made, and what it said about itself until it says more. */
function artifact(kept, event) {
  const { filename, path, size_bytes, is_new, meta } = event.payload;
  const key = keyOf("artifact", path, channelOf(event));
  const before = is_new ? {} : (kept.files.get(key) ?? {});
  const wrote = {
    filename,
    path,
    sizeBytes: size_bytes,
    updatedAt: event.ts,
    meta: { ...before.meta, ...present(meta ?? {}) },
  };
  kept.files.set(key, { ...made(event), ...before, ...wrote });
  return [[key, kept.files.get(key)]];
}

function processStart(_, event) {
  const { process, pid, model = null, demo_mode = false } = event.payload;
  const started = { kind: "session_start", process, pid, model, demoMode: demo_mode };
  return [[`marker:${event.id}`, { ...made(event), ...started }]];
}

/** The end of a process, with which everybody of the team falls asleep. */
function processEnd(kept, event) {
  const { process, reason, exit_code = null } = event.payload;
  const ended = { kind: "session_end", process, reason, exitCode: exit_code };
  return [[`marker:${event.id}`, { ...made(event), ...ended }], ...asleep(kept, [...kept.team.keys()])];
}

const STEPS = new Map([
  ["ui.message", message],
  ...Object.keys(PARTS).map((type) => [type, part]),
  ["roster.join", join],
  ["roster.status", status],
  ["artifact.write", artifact],
  ["process.start", processStart],
  ["process.end", processEnd],
  ["block.retract", retract],
  ["agent.end", end],
]);
