/** Messages of people, and agents: their starts, hand-offs, stops and ends. */

import type { LogEvent, UiMessage } from "../events.js";
import { type AnyEvent, visibleChannel } from "../folds/event-text.js";
import { isTurnRunning } from "../folds/tree.js";
import type { Owned } from "../shared/ownership.js";
import { type Draft, messageFields, partFields } from "./draft.js";
import type { Path } from "./fold-state.js";
import type { ReducerTable } from "./reduce.js";
import type { AgentMessage, AgentPart, FilePart, Part, TextPart, UserMessage } from "./types.js";

type EventOf<Type extends LogEvent["type"]> = Extract<LogEvent, { type: Type }>;

/** Return the parts of a person's message: its text, then its files. A message of files alone has no text. */
function messageParts({ id, seq, ts }: Pick<AnyEvent, "id" | "seq" | "ts">, { text, content = [] }: UiMessage): Part[] {
  const files = content.flatMap((item, at): FilePart[] => {
    if (item.type === "text") return [];
    const { src, media_type = null, size_bytes = null } = item;
    return [{ id: `${id} ${at}`, seq, ts, type: "file", src, filename: item.title ?? null, media_type, size_bytes }];
  });
  // files alone: the text of the message is their labels
  if (files.length > 0 && files.length === content.length) return files;
  const said: TextPart = {
    id,
    seq,
    ts,
    type: "text",
    text,
    state: "done",
    aborted: null,
    citations: [],
    speaker: null,
    redacted: false,
  };
  if (files.length === 0) return [said];
  return [said, ...files];
}

/** Return the message of an event, or of one that is being sent. */
export function buildUserMessage(event: AnyEvent, state: UserMessage["state"]): UserMessage {
  const payload = event.payload as UiMessage;
  return {
    id: event.id,
    seq: event.seq,
    ts: event.ts,
    turn: event.trace_id ?? null,
    channel: visibleChannel(event),
    role: "user",
    author: event.actor ?? null,
    speaker: payload.speaker ?? null,
    target: payload.target ?? null,
    state,
    error: null,
    parts: messageParts(event, payload),
  };
}

/** A message of a running turn joins the messages at once. While other turns run it is queued. */
function addUserMessage(draft: Draft, event: EventOf<"ui.message">): void {
  const { state } = draft;
  if (state.unsent.some(({ id }) => id === event.id)) {
    state.unsent = state.unsent.filter(({ id }) => id !== event.id);
  }
  const turn = event.trace_id ?? "";
  const isBusy = state.tree.open.size > 0 || state.unstarted.size > 0;
  const joins = isTurnRunning(state.tree, turn);
  if (!joins) draft.own("unstarted").set(turn, [...(state.unstarted.get(turn) ?? []), event.id]);
  if (joins || !isBusy) draft.addMessage(buildUserMessage(event, "sent"));
  else draft.own("queue").push(draft.batch.adopt(buildUserMessage(event, "queued")));
}

/** Move the messages of a turn to where the turn starts. */
function placeTurnMessages(draft: Draft, turn: string): void {
  const ids = draft.state.unstarted.get(turn);
  if (ids === undefined) return;
  draft.own("unstarted").delete(turn);
  for (const id of ids) {
    const { queue, messages } = draft.state;
    const message = queue.find((each) => each.id === id) ?? messages.findLast((each) => each.id === id);
    if (message?.role !== "user" || messages.at(-1) === message) continue;
    draft.removeMessage(id);
    draft.addMessage({ ...message, state: "sent", parts: [...message.parts] });
  }
}

function startAgent(draft: Draft, event: EventOf<"agent.start">): void {
  placeTurnMessages(draft, event.trace_id ?? "");
  draft.state.lastStop = null;
  const { agent_id, payload } = event;
  if (agent_id === undefined) return;
  const parent = draft.state.agents.get(payload.parent_id ?? "");
  const callPart = parent?.calls.get(payload.call_id ?? "");
  const holder = callPart === undefined ? undefined : draft.findPath(payload.parent_id, callPart);
  const isCalled = holder !== undefined || (payload.via === "call" && parent !== undefined);
  const path = isCalled
    ? addAgentPart(draft, event, holder ?? (parent?.paths.at(-1) as Path))
    : addTopAgent(draft, event);
  draft.openPlace(agent_id, path);
}

function addAgentPart(draft: Draft, event: EventOf<"agent.start">, holder: Path): Path {
  const { name, model = null, call_id = null } = event.payload;
  const part: AgentPart = {
    id: event.id,
    seq: event.seq,
    ts: event.ts,
    agent_id: event.agent_id ?? null,
    agent_name: name,
    model,
    depth: event.depth ?? 0,
    state: "running",
    ending: null,
    type: "agent",
    call_id,
    parts: [],
  };
  draft.addPart(holder, part, call_id);
  return [...holder, part.id];
}

function addTopAgent(draft: Draft, event: EventOf<"agent.start">): Path {
  const message: Owned<AgentMessage> = draft.addAgentMessage(event);
  message.agent_name = event.payload.name;
  message.model = event.payload.model ?? null;
  message.state = "running";
  return [message.id];
}

/** An agent that ended by itself without a part leaves no message. */
const QUIET_ENDS = new Set(["end_turn", "stop_sequence", "handoff"]);

function endAgent(draft: Draft, event: EventOf<"agent.end">): void {
  const place = draft.state.agents.get(event.agent_id ?? "");
  if (place === undefined) return;
  draft.own("agents").delete(event.agent_id ?? "");
  const path = place.paths.at(-1) as Path;
  const holder = draft.ownHolder(path);
  if (holder === undefined || !("agent_id" in holder)) return;
  const { stop_reason, reason = null } = event.payload;
  if (path.length === 1 && holder.parts.length === 0 && QUIET_ENDS.has(stop_reason)) {
    draft.removeMessage(holder.id);
    return;
  }
  const stop = stop_reason === "cancelled" ? draft.state.lastStop : null;
  holder.state = "done";
  holder.ending = { stop_reason, reason, actor: stop?.actor ?? null, seq: event.seq, ts: event.ts };
}

/** A stop is part of the ending of what it ends; any other command, or a stop while nothing runs, is an event. */
function noteCommand(draft: Draft, event: EventOf<"ui.command">): void {
  const { actor = null, seq, ts, payload } = event;
  const { tree, unstarted } = draft.state;
  if (payload.command.kind === "stop" && (tree.open.size > 0 || unstarted.size > 0)) {
    draft.state.lastStop = { actor, seq, ts };
    return;
  }
  const part: Part = {
    ...partFields(event),
    ...{ type: "event", name: event.type, payload: payload as never, actor, origin: event.origin },
  };
  draft.addMessage({ ...messageFields(event), role: "event", parts: [part] });
}

/** The usage ends a message: its calls start to run. */
function runCalls(draft: Draft, event: EventOf<"agent.usage">): void {
  const agentId = event.agent_id ?? "";
  const queued = draft.state.agents.get(agentId)?.queuedCalls;
  if (!queued?.size) return;
  for (const id of queued.keys()) {
    const path = draft.findPath(agentId, id);
    const part = path && draft.ownPart(path, id);
    if (part?.type === "call" && part.state === "queued") part.state = "running";
  }
  draft.ownPlace(event).queuedCalls = new Map();
}

export const AGENT_REDUCERS: ReducerTable = {
  "ui.message": addUserMessage,
  "ui.command": noteCommand,
  "agent.start": startAgent,
  "agent.end": endAgent,
  "agent.usage": runCalls,
  "agent.handoff": (draft, event) => {
    const { to, to_agent_id } = event.payload;
    draft.addEventPart(event, { ...partFields(event), type: "handoff", to, to_agent_id });
  },
};
