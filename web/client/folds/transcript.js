/**
 * What was said in a session, as bubbles: by people, by agents, and notes of what people did without words.
 *
 * A bubble stands where its event stands in the log. What was retracted vanishes; a text that was aborted
 * stays, `partial`. Texts that are still being written are in what is open (`pending`). The same as
 * `turnlog.state.transcript`.
 */

import { channelOf, isDirect, narrated, nothing } from "./event-text.js";
import { isBlank } from "../shared/python-text.js";

const OPEN = -1; // the place of a text that has no bubble yet

export class Transcript {
  #bubbles = new Map(); // by seq
  #blocks = new Map(); // by open agent: the seqs of texts that can still be retracted
  #declared;

  /** `declared` says which types are the application's own. */
  constructor(declared = nothing) {
    this.#declared = declared;
  }

  /** All bubbles in order. */
  get bubbles() {
    return [...this.#bubbles.values()];
  }

  /** Take one event into account. */
  apply(event) {
    const step = STEPS.get(event.type);
    if (step) step(this, event);
    else if (isDirect(event, this.#declared)) this.add(noteOf(event));
  }

  /** What somebody sees who is in these channels, in order. */
  seenIn(channels) {
    return this.bubbles.filter(({ channel }) => channel === undefined || channels.includes(channel));
  }

  /** @internal */
  textsOf({ agent_id = "" }) {
    if (!this.#blocks.has(agent_id)) this.#blocks.set(agent_id, new Map());
    return this.#blocks.get(agent_id);
  }

  /** @internal Add a bubble, unless there is nothing to read. */
  add(bubble) {
    if (isBlank(bubble.text)) return false;
    this.#bubbles.set(bubble.seq, bubble);
    return true;
  }

  /** @internal */
  remove(seq) {
    this.#bubbles.delete(seq);
  }

  /** @internal What an agent said cannot be retracted any more. */
  forget({ agent_id = "" }) {
    this.#blocks.delete(agent_id);
  }
}

/** A text in its place; what is unknown is left out. */
function bubbleOf(event, who, text, speaker) {
  const bubble = { seq: event.seq, ts: event.ts, who, text };
  const more = {
    turn: event.trace_id,
    channel: channelOf(event),
    speaker,
    agent_id: event.agent_id,
    agent_name: event.agent_name,
    depth: event.depth || null,
    partial: event.type === "block.end" || null,
  };
  for (const [name, value] of Object.entries(more)) if (value != null) bubble[name] = value;
  return bubble;
}

const noteOf = (event) => bubbleOf(event, "note", narrated(event), event.actor);

function said(transcript, event) {
  const { text, speaker, block_id } = event.payload;
  const added = transcript.add(bubbleOf(event, "assistant", text, speaker));
  if (added && block_id) transcript.textsOf(event).set(block_id, event.seq);
}

/** A text that was aborted has no twin: what there is of it stands here. */
function blockEnd(transcript, event) {
  const { block_id, status, text } = event.payload;
  const texts = transcript.textsOf(event);
  if (status === "complete") return;
  const place = texts.get(block_id);
  texts.delete(block_id);
  if (place !== OPEN) return;
  if (transcript.add(bubbleOf(event, "assistant", text ?? "", null))) texts.set(block_id, event.seq);
}

function retract(transcript, event) {
  const texts = transcript.textsOf(event);
  for (const block_id of event.payload.block_ids) {
    transcript.remove(texts.get(block_id));
    texts.delete(block_id);
  }
}

const STEPS = new Map([
  [
    "ui.message",
    (transcript, event) => {
      const { text, speaker } = event.payload;
      transcript.add(bubbleOf(event, "user", text, speaker ?? event.actor));
    },
  ],
  [
    "ui.action",
    (transcript, event) => {
      if (event.payload.call_id == null) transcript.add(noteOf(event)); // one that answers a call is a result
    },
  ],
  ["assistant.message", said],
  [
    "block.start",
    (transcript, event) => {
      if (event.payload.kind === "text") transcript.textsOf(event).set(event.payload.block_id, OPEN);
    },
  ],
  ["block.end", blockEnd],
  ["block.retract", retract],
  ["agent.end", (transcript, event) => transcript.forget(event)],
]);
