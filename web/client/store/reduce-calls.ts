/** Calls of tools, and the questions and approvals that people answer. */

import type { Json, LogEvent, ToolResult } from "../events.js";
import { type Owned, ownField } from "../shared/ownership.js";
import { type Draft, findById, partFields } from "./draft.js";
import type { Path } from "./fold-state.js";
import type { ReducerTable } from "./reduce.js";
import type { ApprovalPart, CallPart, CallState, Part, QuestionPart } from "./types.js";

type EventOf<Type extends LogEvent["type"]> = Extract<LogEvent, { type: Type }>;

const NO_IMAGES: CallPart["images"] = [];
const MAX_PROGRESS_CHARS = 4000; // of a running tool's output: the end
const ENDED: ReadonlySet<CallState> = new Set<CallState>(["done", "error", "denied", "aborted"]);
const ERROR_STATES = new Map<string | undefined, CallState>([
  ["CANCELLED", "aborted"],
  ["DENIED", "denied"],
]);

const answerOf = ({ actor, seq, ts }: LogEvent, value: Json): QuestionPart["answer"] => ({
  actor: actor ?? null,
  seq,
  ts,
  value,
});
const isOpenQuestion = (part: Part, callId: string): part is QuestionPart =>
  part.type === "question" && part.call_id === callId && part.state === "open";
const isOpenApproval = (part: Part, callId: string): part is ApprovalPart =>
  part.type === "approval" && part.call_id === callId && part.state === "open";

/** Return the path and the part of a call; undefined if the agent has no such call. */
function findCall(draft: Draft, agentId: string | undefined, callId: string | undefined) {
  const id = draft.state.agents.get(agentId ?? "")?.calls.get(callId ?? "");
  const path = id === undefined ? undefined : draft.findPath(agentId, id);
  const part = path && findById(draft.partsAt(path), id as string);
  return path && part?.type === "call" ? { path, part } : undefined;
}

function ownCall(draft: Draft, agentId: string | undefined, callId: string | undefined) {
  const found = findCall(draft, agentId, callId);
  const part = found && draft.ownPart(found.path, found.part.id);
  return found && part?.type === "call" ? { path: found.path, part } : undefined;
}

/** Own the call of an event, which begins here if the log has not named it before. */
function ownOrAddCall(draft: Draft, event: LogEvent, callId: string, tool: string | undefined, id: string) {
  const known = ownCall(draft, event.agent_id, callId);
  if (known) return known;
  const path = draft.currentPath(event);
  // one literal: spreads make objects slow
  const part: Owned<CallPart> = {
    id,
    seq: event.seq,
    ts: event.ts,
    type: "call",
    call_id: callId,
    tool: tool ?? "tool",
    state: "writing",
    args: null,
    written: "",
    incomplete: null,
    executor: "backend",
    progress: "",
    result: null,
    error: null,
    images: NO_IMAGES,
  };
  draft.addPart(path, part);
  const place = draft.ownPlace(event);
  ownField(draft.batch, place, "calls").set(callId, id);
  ownField(draft.batch, place, "queuedCalls").set(id, true);
  return { path, part };
}

export function startCallBlock(draft: Draft, event: EventOf<"block.start">): void {
  const { block_id, call_id, tool } = event.payload;
  ownOrAddCall(draft, event, call_id ?? block_id, tool, block_id);
}

export function extendCall(part: Owned<CallPart>, text: string): void {
  part.written += text;
}

export function abortCall(draft: Draft, event: LogEvent, path: Path, part: Owned<CallPart>, written: string): void {
  part.state = "aborted";
  part.written = written;
  part.progress = "";
  closeWaits(draft, event, path, part.call_id, null);
}

/** Forget a retracted call: another call may have its id again. */
export function retractCall(draft: Draft, event: EventOf<"block.retract">, path: Path, { call_id }: CallPart): void {
  ownField(draft.batch, draft.ownPlace(event), "calls").delete(call_id);
  draft.removeParts(path, (part) => "call_id" in part && part.call_id === call_id);
}

function startCall(draft: Draft, event: EventOf<"tool.call">): void {
  const { call_id, tool, args, executor = "backend", incomplete = null, block_id } = event.payload;
  if (block_id !== undefined) renameCall(draft, event, block_id, call_id);
  const isTaken = block_id !== undefined && draft.findPath(event.agent_id, block_id) !== undefined;
  const { part } = ownOrAddCall(draft, event, call_id, tool, isTaken ? event.id : (block_id ?? event.id));
  part.tool = tool;
  part.args = args;
  part.executor = executor;
  part.incomplete = incomplete;
  part.written = "";
  if (part.state === "writing") part.state = restState(draft, event.agent_id, part.id);
}

/** Set the id of a call whose block started without one. */
function renameCall(draft: Draft, event: EventOf<"tool.call">, blockId: string, callId: string): void {
  const path = draft.findPath(event.agent_id, blockId);
  const part = path && draft.ownPart(path, blockId);
  if (part?.type !== "call" || part.call_id !== blockId) return;
  const calls = ownField(draft.batch, draft.ownPlace(event), "calls");
  calls.delete(part.call_id);
  calls.set(callId, part.id);
  part.call_id = callId;
}

/** Return the state of a call that nobody has to answer. */
const restState = (draft: Draft, agentId: string | undefined, id: string): CallState =>
  draft.state.agents.get(agentId ?? "")?.queuedCalls.has(id) ? "queued" : "running";

function addProgress(draft: Draft, event: EventOf<"tool.progress">): void {
  const call = ownCall(draft, event.agent_id, event.payload.call_id)?.part;
  if (call && !ENDED.has(call.state)) call.progress = (call.progress + event.payload.text).slice(-MAX_PROGRESS_CHARS);
}

function endCall(draft: Draft, event: EventOf<"tool.result">): void {
  const { payload } = event;
  const call = ownCall(draft, event.agent_id, payload.call_id);
  if (call === undefined) {
    addStrayResult(draft, event);
    return;
  }
  // a call whose block was aborted still gets the result that closes it
  if (ENDED.has(call.part.state) && call.part.state !== "aborted") return;
  const { path, part } = call;
  const isWaiting = part.state === "waiting";
  part.state = payload.ok ? "done" : (ERROR_STATES.get(payload.error?.code) ?? "error");
  part.result = payload.result;
  part.error = payload.error;
  part.images = payload.images ?? NO_IMAGES;
  part.progress = "";
  if (isWaiting) closeWaits(draft, event, path, payload.call_id, event.origin === "ui" ? payload.result : null);
}

/** A result without its call is shown as an event. */
function addStrayResult(draft: Draft, event: EventOf<"tool.result">): void {
  const payload = event.payload as ToolResult as unknown as Json;
  draft.addEventPart(event, {
    ...partFields(event),
    ...{ type: "event", name: event.type, payload, actor: event.actor ?? null, origin: event.origin },
  });
}

/** Close the open questions and approvals of a call; the value of a person answers a question. */
function closeWaits(draft: Draft, event: LogEvent, path: Path, callId: string, value: Json): void {
  for (const open of draft.partsAt(path)) {
    if (!isOpenQuestion(open, callId) && !isOpenApproval(open, callId)) continue;
    const part = draft.ownPart(path, open.id);
    const isAnswer = event.type === "tool.result" && event.origin === "ui";
    if (part?.type === "approval") part.state = "closed";
    if (part?.type !== "question") continue;
    part.state = isAnswer ? "answered" : "closed";
    if (isAnswer) part.answer = answerOf(event, value);
  }
}

function askPage(draft: Draft, event: EventOf<"tool.await">): void {
  for (const { call_id, tool, args, roles = [] } of event.payload.calls) {
    const id = `${event.id} ${call_id}`;
    const { path, part: call } = ownOrAddCall(draft, event, call_id, tool, `${id} call`);
    if (ENDED.has(call.state)) continue;
    call.state = "waiting";
    const open = draft.partsAt(path).find((part) => isOpenQuestion(part, call_id));
    const known = open && draft.ownPart(path, open.id);
    if (known?.type === "question") {
      known.seq = event.seq;
      known.ts = event.ts;
      known.args = args;
      known.roles = roles;
      continue;
    }
    const question: QuestionPart = {
      id,
      seq: event.seq,
      ts: event.ts,
      type: "question",
      call_id,
      tool,
      args,
      wants: call.executor === "backend" ? "values" : "result",
      roles,
      state: "open",
      answer: null,
    };
    draft.addPart(path, question, call_id);
  }
}

function askApproval(draft: Draft, event: EventOf<"approval.request">): void {
  const { call_id, tool } = event.payload;
  const { path, part: call } = ownOrAddCall(draft, event, call_id, tool, `${event.id} call`);
  if (ENDED.has(call.state)) return;
  call.state = "waiting";
  const part: ApprovalPart = {
    id: event.id,
    seq: event.seq,
    ts: event.ts,
    type: "approval",
    call_id,
    tool,
    request: event.payload,
    state: "open",
    answer: null,
  };
  draft.addPart(path, part, call_id);
}

function decideApproval(draft: Draft, event: EventOf<"approval.decision">): void {
  const { call_id, decision, notes = null } = event.payload;
  const call = findCall(draft, event.agent_id, call_id);
  const open = call && draft.partsAt(call.path).find((part) => isOpenApproval(part, call_id));
  const part = call && open && draft.ownPart(call.path, open.id);
  if (call === undefined || part?.type !== "approval") return;
  part.state = decision;
  part.answer = { actor: event.actor ?? null, seq: event.seq, ts: event.ts, notes };
  resumeCall(draft, event.agent_id, call_id);
}

/** Answer the question of a call by an input; return whether there is such a call. */
export function acceptInput(draft: Draft, event: EventOf<"ui.action">, callId: string): boolean {
  const call = findCall(draft, event.agent_id, callId);
  if (call === undefined) return false;
  const { action } = event.payload;
  const open = draft.partsAt(call.path).find((part) => isOpenQuestion(part, callId));
  const part = open && draft.ownPart(call.path, open.id);
  const value = "values" in action ? action.values : null;
  if (part?.type === "question") {
    part.state = "answered";
    part.answer = answerOf(event, value);
  }
  resumeCall(draft, event.agent_id, callId);
  return true;
}

/** Let a call run again if nobody else has to answer. */
function resumeCall(draft: Draft, agentId: string | undefined, callId: string): void {
  const call = ownCall(draft, agentId, callId);
  if (call === undefined || call.part.state !== "waiting") return;
  const waits = draft.partsAt(call.path).some((part) => isOpenQuestion(part, callId) || isOpenApproval(part, callId));
  if (waits) return;
  call.part.state = call.part.args === null ? "writing" : restState(draft, agentId, call.part.id);
}

export const CALL_REDUCERS: ReducerTable = {
  "tool.call": startCall,
  "tool.progress": addProgress,
  "tool.result": endCall,
  "tool.await": askPage,
  "approval.request": askApproval,
  "approval.decision": decideApproval,
};
