/** Texts and thinking: streaming, complete, aborted, retracted. Blocks of calls are in `reduce-calls.ts`. */

import type { LogEvent } from "../events.js";
import type { Owned } from "../shared/ownership.js";
import { type Draft, findById } from "./draft.js";
import type { ReducerTable } from "./reduce.js";
import { abortCall, extendCall, retractCall, startCallBlock } from "./reduce-calls.js";
import type { TextPart } from "./types.js";

type EventOf<Type extends LogEvent["type"]> = Extract<LogEvent, { type: Type }>;

/** By reason of `block.end`; without one the model failed. */
const ABORT_REASONS = new Map<string | undefined, NonNullable<TextPart["aborted"]>>([
  ["stopped", "stop"],
  ["interrupted", "restart"],
  ["timeout", "timeout"],
]);

/** A part has the id of its block, or else of its event. */
const newText = ({ seq, ts }: LogEvent, type: TextPart["type"], id: string): TextPart => ({
  id,
  seq,
  ts,
  type,
  text: "",
  state: "streaming",
  aborted: null,
  citations: [],
  speaker: null,
  redacted: false,
});

function startBlock(draft: Draft, event: EventOf<"block.start">): void {
  const { kind, block_id } = event.payload;
  if (kind === "tool_call") startCallBlock(draft, event);
  else if (kind !== "other") draft.addPart(draft.currentPath(event), newText(event, kind, block_id));
}

function extendBlock(draft: Draft, event: EventOf<"block.delta">): void {
  const { block_id, text } = event.payload;
  const part = draft.ownBlock(event.agent_id, block_id);
  if (part?.type === "text" || part?.type === "thinking") part.text += text;
  else if (part?.type === "call") extendCall(part, text);
}

/** A complete block is completed by its own event, which has its text. */
function endBlock(draft: Draft, event: EventOf<"block.end">): void {
  const { block_id, status, text = "", reason } = event.payload;
  const path = status === "aborted" ? draft.findPath(event.agent_id, block_id) : undefined;
  const part = path && draft.ownPart(path, block_id);
  if (part?.type === "call") abortCall(draft, event, path as readonly string[], part, text);
  if (part?.type !== "text" && part?.type !== "thinking") return;
  const aborted = ABORT_REASONS.get(reason) ?? "error";
  part.seq = event.seq;
  part.ts = event.ts;
  part.text = text;
  part.state = "aborted";
  part.aborted = aborted;
}

function retractBlocks(draft: Draft, event: EventOf<"block.retract">): void {
  for (const block_id of event.payload.block_ids) {
    const path = draft.findPath(event.agent_id, block_id);
    const part = path && findById(draft.partsAt(path), block_id);
    if (path === undefined || part === undefined) continue;
    if (part.type === "call") retractCall(draft, event, path, part);
    draft.removeParts(path, ({ id }) => id === block_id);
  }
}

/** The complete text of a block; the deltas before it are replaced. */
function completeText(draft: Draft, event: EventOf<"assistant.message"> | EventOf<"assistant.thinking">): void {
  const type = event.type === "assistant.message" ? "text" : "thinking";
  const { text, block_id } = event.payload;
  const known = block_id === undefined ? undefined : draft.ownBlock(event.agent_id, block_id);
  const part: Owned<TextPart> = known?.type === type ? known : newText(event, type, block_id ?? event.id);
  part.seq = event.seq;
  part.ts = event.ts;
  part.text = text;
  part.state = "done";
  if (event.type === "assistant.message") {
    part.citations = event.payload.citations ?? [];
    part.speaker = event.payload.speaker ?? null;
  } else part.redacted = Boolean(event.payload.redacted);
  if (part !== known) draft.addPart(draft.currentPath(event), part);
}

export const TEXT_REDUCERS: ReducerTable = {
  "block.start": startBlock,
  "block.delta": extendBlock,
  "block.end": endBlock,
  "block.retract": retractBlocks,
  "assistant.message": completeText,
  "assistant.thinking": completeText,
};
