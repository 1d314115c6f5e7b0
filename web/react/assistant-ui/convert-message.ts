/**
 * Converts a message of a session to one of assistant-ui. Pure.
 *
 * Texts, thinking, calls and files become parts of that kind. A call carries its approval and its question. What
 * assistant-ui has no part for (views, agents, handoffs, errors, events) becomes a `data` part with the name of its type
 * and the whole part as data. The parts of a called agent follow behind its `data` part and have its id as `parentId`.
 */

import type { ThreadMessageLike } from "@assistant-ui/react";
import type {
  AgentEnd,
  ApprovalPart,
  CallPart,
  FilePart,
  Message,
  Part,
  QuestionPart,
  TextPart,
} from "@turnlog/client";

type Content = Exclude<ThreadMessageLike["content"], string>[number];
type ToolCall = Extract<Content, { type: "tool-call" }>;
type Status = NonNullable<ThreadMessageLike["status"]>;

interface Place {
  /** The parts around the part. */
  readonly siblings: readonly Part[];
  /** The part of the agent around the part; null in a message. */
  readonly parentId: string | null;
}

type Converters = { [Type in Part["type"]]: (part: Extract<Part, { type: Type }>, place: Place) => Content[] };

const asData = (part: Part): Content[] => [{ type: "data", name: part.type, data: part }];
const parent = ({ parentId }: Place) => (parentId === null ? {} : { parentId });

/** The approval and the question of a call are shown at the call. */
const atItsCall = (): Content[] => [];

const CONVERTERS: Converters = {
  text: ({ text }, place) => [{ type: "text", text, ...parent(place) }],
  thinking: ({ text }: TextPart, place) => [{ type: "reasoning", text, ...parent(place) }],
  call: (part, place) => [convertCall(part, place)],
  question: atItsCall,
  approval: atItsCall,
  file: (part, place) => [convertFile(part, place)],
  agent: (part) => [...asData(part), ...convertParts(part.parts, part.id)],
  view: asData,
  handoff: asData,
  error: asData,
  event: asData,
};

function convertCall(part: CallPart, place: Place): ToolCall {
  const { call_id, tool, state } = part;
  const approval = place.siblings.findLast((each) => each.type === "approval" && each.call_id === call_id);
  const question = place.siblings.findLast((each) => each.type === "question" && each.call_id === call_id);
  return {
    type: "tool-call",
    toolCallId: call_id,
    toolName: tool,
    ...convertArguments(part),
    ...convertResult(part),
    ...(approval?.type === "approval" && { approval: convertApproval(approval) }),
    ...(question?.type === "question" && state === "waiting" && convertQuestion(question)),
    ...parent(place),
  };
}

const convertArguments = ({ args, written, incomplete }: CallPart) =>
  args === null ? { argsText: written } : { args, argsText: incomplete ?? JSON.stringify(args) };

function convertResult({ state, result, error }: CallPart): Pick<ToolCall, "result" | "isError"> {
  if (state === "done") return { result };
  return state === "error" || state === "denied" || state === "aborted" ? { result: error, isError: true } : {};
}

function convertApproval({ request, state, answer }: ApprovalPart): NonNullable<ToolCall["approval"]> {
  const base = { id: request.call_id, ...(request.reason !== undefined && { prompt: request.reason }) };
  if (state === "open") return base;
  if (state === "expired") return { ...base, resolution: "expired" };
  if (state === "closed") return { ...base, resolution: "cancelled" };
  return { ...base, approved: state === "approve", ...(answer?.notes && { reason: answer.notes }) };
}

/** A tool of the page answers with its result. A tool of the server asks a person: `resume` has the values. */
const convertQuestion = ({ wants, args }: QuestionPart): Pick<ToolCall, "interrupt"> =>
  wants === "values" ? { interrupt: { type: "human", payload: args } } : {};

const convertFile = ({ src, filename, media_type }: FilePart, place: Place): Content => ({
  type: "file",
  data: src,
  sourceType: "url",
  mimeType: media_type ?? "application/octet-stream",
  ...(filename !== null && { filename }),
  ...parent(place),
});

function convertParts(parts: readonly Part[], parentId: string | null = null): Content[] {
  const place = { siblings: parts, parentId };
  return parts.flatMap((part) => (CONVERTERS[part.type] as (part: Part, place: Place) => Content[])(part, place));
}

const STATUS_BY_STATE: { readonly [state in "running" | "waiting"]: Status } = {
  running: { type: "running" },
  waiting: { type: "requires-action", reason: "interrupt" },
};

const STATUS_BY_STOP_REASON: { readonly [reason in AgentEnd["stop_reason"]]?: Status } = {
  cancelled: { type: "incomplete", reason: "cancelled" },
  context_window: { type: "incomplete", reason: "length" },
  error: { type: "incomplete", reason: "error" },
  max_steps: { type: "incomplete", reason: "other" },
  max_tokens: { type: "incomplete", reason: "length" },
  refusal: { type: "incomplete", reason: "content-filter" },
  timeout: { type: "incomplete", reason: "other" },
};

const COMPLETE: Status = { type: "complete", reason: "stop" };

function convertStatus(message: Message): Status {
  if (message.role !== "assistant") return COMPLETE;
  if (message.state !== "done") return STATUS_BY_STATE[message.state];
  const { ending } = message;
  return (ending && STATUS_BY_STOP_REASON[ending.stop_reason]) ?? COMPLETE;
}

/** Convert a message. An event that belongs to no agent becomes a message of the assistant with `data` parts. */
export function convertMessage(message: Message): ThreadMessageLike {
  const { id, ts, role } = message;
  return {
    id,
    role: role === "user" ? "user" : "assistant",
    createdAt: new Date(ts),
    content: convertParts(message.parts),
    metadata: { custom: { turnlog: message } },
    ...(role !== "user" && { status: convertStatus(message) }),
  };
}
