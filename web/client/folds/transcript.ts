/**
 * Folds events to messages: of people, of agents, and notes of actions without words. Same as
 * `turnlog.state.transcript`.
 *
 * A message keeps the position of its event. A retracted text is removed; an aborted one stays, `partial`. Texts that
 * are still streaming are in `listPending`.
 */

import type { Envelope, Payloads } from "../events.js";
import { isBlank } from "../shared/python-text.js";
import { type AnyEvent, eventText, type IsDeclared, isPageEvent, noTypes, visibleChannel } from "./event-text.js";

/** One message. `channel` is the role whose members see it; without one all members do. */
export interface TranscriptMessage {
  seq: number;
  ts: string;
  who: "user" | "assistant" | "note";
  text: string;
  turn?: string;
  channel?: string;
  speaker?: string;
  agent_id?: string;
  agent_name?: string;
  depth?: number;
  partial?: true;
}

const NOT_SHOWN = -1; // instead of a seq: the text has no message yet

/** Folds events to the messages of a session. */
export class Transcript {
  #messages = new Map<number, TranscriptMessage>(); // by seq
  #blocks = new Map<string, Map<string, number>>(); // by open agent: the seqs of texts that can still be retracted
  #isDeclared: IsDeclared;

  /** `isDeclared(type)` tells whether a type is the application's own. */
  constructor(declared: IsDeclared = noTypes) {
    this.#isDeclared = declared;
  }

  get messages(): TranscriptMessage[] {
    return [...this.#messages.values()];
  }

  apply(event: AnyEvent): void {
    const step = REDUCERS.get(event.type);
    if (step) step(this, event);
    else if (isPageEvent(event, this.#isDeclared)) this.add(buildNote(event));
  }

  /** Return the messages that members of these channels may see. */
  visibleTo(channels: string[]): TranscriptMessage[] {
    return this.messages.filter(({ channel }) => channel === undefined || channels.includes(channel));
  }

  /** @internal */
  textSeqs({ agent_id = "" }: AnyEvent): Map<string, number> {
    const seqs = this.#blocks.get(agent_id) ?? new Map<string, number>();
    this.#blocks.set(agent_id, seqs);
    return seqs;
  }

  /** @internal Add a bubble, unless there is nothing to read. */
  add(bubble: TranscriptMessage): boolean {
    if (isBlank(bubble.text)) return false;
    this.#messages.set(bubble.seq, bubble);
    return true;
  }

  /** @internal */
  remove(seq: number | undefined): void {
    if (seq !== undefined) this.#messages.delete(seq);
  }

  /** @internal What an agent said cannot be retracted any more. */
  forgetAgent({ agent_id = "" }: AnyEvent): void {
    this.#blocks.delete(agent_id);
  }
}

/** Return a message without its unknown fields. */
function buildMessage(
  event: AnyEvent,
  who: TranscriptMessage["who"],
  text: string,
  speaker: string | null | undefined,
): TranscriptMessage {
  const bubble: TranscriptMessage = { seq: event.seq, ts: event.ts, who, text };
  const more = {
    turn: event.trace_id,
    channel: visibleChannel(event),
    speaker,
    agent_id: event.agent_id,
    agent_name: event.agent_name,
    depth: event.depth || null,
    partial: event.type === "block.end" || null,
  };
  const known = Object.entries(more).filter(([, value]) => value != null);
  return Object.assign(bubble, Object.fromEntries(known));
}

const buildNote = (event: AnyEvent): TranscriptMessage => buildMessage(event, "note", eventText(event), event.actor);

type Reducer<Payload> = (transcript: Transcript, event: Envelope<string, Payload>) => void;

const addAssistantMessage: Reducer<Payloads["assistant.message"]> = (transcript, event) => {
  const { text, speaker, block_id } = event.payload;
  const added = transcript.add(buildMessage(event, "assistant", text, speaker));
  if (added && block_id) transcript.textSeqs(event).set(block_id, event.seq);
};

/** An aborted text has no `assistant.message`: its partial text is in `block.end`. */
const blockEnd: Reducer<Payloads["block.end"]> = (transcript, event) => {
  const { block_id, status, text } = event.payload;
  const texts = transcript.textSeqs(event);
  if (status === "complete") return;
  const place = texts.get(block_id);
  texts.delete(block_id);
  if (place !== NOT_SHOWN) return;
  if (transcript.add(buildMessage(event, "assistant", text ?? "", null))) texts.set(block_id, event.seq);
};

const retractTexts: Reducer<Payloads["block.retract"]> = (transcript, event) => {
  const texts = transcript.textSeqs(event);
  for (const block_id of event.payload.block_ids) {
    transcript.remove(texts.get(block_id));
    texts.delete(block_id);
  }
};

const REDUCERS = new Map<string, Reducer<any>>([
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
      if (event.payload.call_id == null) transcript.add(buildNote(event)); // an action that answers a call is a result
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
