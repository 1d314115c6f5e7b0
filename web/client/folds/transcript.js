/**
 * What was said in a session, as bubbles: by people, by agents, and notes of what people did without words.
 *
 * A bubble stands where its event stands in the log. What was retracted vanishes; a text that was aborted
 * stays, `partial`. Texts that are still being written are in what is open (`pending`). The same as
 * `turnlog.state.transcript`.
 */

import { isBlank } from "../shared/python-text.js";
import { eventText, isPageEvent, noTypes, visibleChannel } from "./event-text.js";

const NOT_SHOWN = -1; // the place of a text that has no bubble yet

export class Transcript {
  #messages = new Map(); // by seq
  #blocks = new Map(); // by open agent: the seqs of texts that can still be retracted
  #isDeclared;

  /** `declared` says which types are the application's own. */
  constructor(declared = noTypes) {
    this.#isDeclared = declared;
  }

  /** All bubbles in order. */
  get messages() {
    return [...this.#messages.values()];
  }

  /** Take one event into account. */
  apply(event) {
    const step = REDUCERS.get(event.type);
    if (step) step(this, event);
    else if (isPageEvent(event, this.#isDeclared)) this.add(buildNote(event));
  }

  /** What somebody sees who is in these channels, in order. */
  visibleTo(channels) {
    return this.messages.filter(({ channel }) => channel === undefined || channels.includes(channel));
  }

  /** @internal */
  textSeqs({ agent_id = "" }) {
    if (!this.#blocks.has(agent_id)) this.#blocks.set(agent_id, new Map());
    return this.#blocks.get(agent_id);
  }

  /** @internal Add a bubble, unless there is nothing to read. */
  add(bubble) {
    if (isBlank(bubble.text)) return false;
    this.#messages.set(bubble.seq, bubble);
    return true;
  }

  /** @internal */
  remove(seq) {
    this.#messages.delete(seq);
  }

  /** @internal What an agent said cannot be retracted any more. */
  forgetAgent({ agent_id = "" }) {
    this.#blocks.delete(agent_id);
  }
}

/** A text in its place; what is unknown is left out. */
function buildMessage(event, who, text, speaker) {
  const bubble = { seq: event.seq, ts: event.ts, who, text };
  const more = {
    turn: event.trace_id,
    channel: visibleChannel(event),
    speaker,
    agent_id: event.agent_id,
    agent_name: event.agent_name,
    depth: event.depth || null,
    partial: event.type === "block.end" || null,
  };
  for (const [name, value] of Object.entries(more)) if (value != null) bubble[name] = value;
  return bubble;
}

const buildNote = (event) => buildMessage(event, "note", eventText(event), event.actor);

function addAssistantMessage(transcript, event) {
  const { text, speaker, block_id } = event.payload;
  const added = transcript.add(buildMessage(event, "assistant", text, speaker));
  if (added && block_id) transcript.textSeqs(event).set(block_id, event.seq);
}

/** A text that was aborted has no twin: what there is of it stands here. */
function blockEnd(transcript, event) {
  const { block_id, status, text } = event.payload;
  const texts = transcript.textSeqs(event);
  if (status === "complete") return;
  const place = texts.get(block_id);
  texts.delete(block_id);
  if (place !== NOT_SHOWN) return;
  if (transcript.add(buildMessage(event, "assistant", text ?? "", null))) texts.set(block_id, event.seq);
}

function retractTexts(transcript, event) {
  const texts = transcript.textSeqs(event);
  for (const block_id of event.payload.block_ids) {
    transcript.remove(texts.get(block_id));
    texts.delete(block_id);
  }
}

const REDUCERS = new Map([
  [
    "ui.message",
    (transcript, event) => {
      const { text, speaker } = event.payload;
      transcript.add(buildMessage(event, "user", text, speaker ?? event.actor));
    },
  ],
  [
    "ui.action",
    (transcript, event) => {
      if (event.payload.call_id == null) transcript.add(buildNote(event)); // one that answers a call is a result
    },
  ],
  ["assistant.message", addAssistantMessage],
  [
    "block.start",
    (transcript, event) => {
      if (event.payload.kind === "text") transcript.textSeqs(event).set(event.payload.block_id, NOT_SHOWN);
    },
  ],
  ["block.end", blockEnd],
  ["block.retract", retractTexts],
  ["agent.end", (transcript, event) => transcript.forgetAgent(event)],
]);
