/**
 * `<tl-talk-message>`: a message of a person, or what an agent said, showed and asked.
 *
 * Of an agent only texts, views, questions and files are drawn, at any depth; how it works is not. The element updates
 * when its message or the names change.
 */

import { html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";

import { ConsoleElement } from "../console/ui/base-element.js";
import { formatShortTime } from "../console/ui/time-format.js";
import { agentColour } from "./agent-colour.js";
import "./message-file.js";
import "./question.js";

export class TalkMessage extends ConsoleElement {
  static properties = {
    talk: { attribute: false },
    message: { attribute: false },
    members: { attribute: false },
    isContinued: { attribute: false }, // the message before is of the same person
    isClosed: { attribute: false }, // the session
  };

  render() {
    return this.message.role === "user" ? this.#drawUser(this.message) : this.#drawAgent(this.message);
  }

  #drawUser(message) {
    const { talk, isContinued } = this;
    const isOwn = talk.isMe(message.author) || message.author === null;
    const name = isOwn ? talk.texts.you : (talk.nameOf(message.author) ?? talk.texts.someone);
    const files = message.parts.filter(({ type }) => type === "file");
    const texts = message.parts.filter(({ type, text }) => type === "text" && text !== "");
    return html`<article class="message ${isOwn ? "own" : "other"} ${isContinued ? "continued" : ""}"
      data-state=${message.state} aria-label=${name}>
      <p class="by ${isOwn && !isContinued ? "unseen" : ""}"><b>${name}</b> ${drawTime(message.ts, this.talk)}</p>
      ${files.length > 0 ? html`<div class="message-files">${repeat(files, keyOf, (part) => this.#drawFile(part))}</div>` : nothing}
      ${texts.map(({ text }) => html`<div class="bubble" dir="auto">${text}</div>`)}
      ${this.#drawState(message)}
    </article>`;
  }

  #drawState({ id, state }) {
    const { texts, store } = this.talk;
    if (state === "sending") return html`<p class="state" role="status">${texts.sendingMessage}</p>`;
    if (state === "queued") return html`<p class="state">${texts.queued}</p>`;
    if (state !== "failed") return nothing;
    return html`<p class="state wrong" role="alert">${texts.notSent}
      ${this.isClosed ? nothing : html`<button type="button" @click=${() => store.retry(id).catch(() => {})}>${texts.tryAgain}</button>`}
      <button type="button" class="plain" @click=${() => store.discard(id)}>${texts.discard}</button></p>`;
  }

  #drawAgent(message) {
    const name = message.agent_name ?? this.talk.texts.assistant;
    const parts = [...visibleParts(message)];
    const end = this.#drawEnding(message);
    if (parts.length === 0 && end === nothing) return nothing;
    const colour = `colour-${agentColour(name)}`;
    return html`<article class="message agent ${this.isContinued ? "continued" : ""}" aria-label=${name}>
      ${
        this.isContinued
          ? nothing
          : html`<p class="by"><span class="sign ${colour}" aria-hidden="true">${initial(name)}</span>
        <b>${name}</b> ${drawTime(message.ts, this.talk)}</p>`
      }
      <div class="parts">${repeat(parts, keyOf, (part) => this.#drawPart(part))} ${end}</div>
    </article>`;
  }

  #drawPart(part) {
    return PARTS[part.type].call(this, part);
  }

  #drawEnding({ ending }) {
    const { texts } = this.talk;
    if (ending?.stop_reason !== "cancelled") return nothing;
    const words = this.talk.isMe(ending.actor) ? texts.stoppedByYou : texts.stopped(this.talk.nameOf(ending.actor));
    return html`<p class="note">${words}</p>`;
  }

  text(part) {
    const { texts } = this.talk;
    const isCut = part.state === "aborted" && part.aborted !== "stop";
    return html`<tl-talk-text .talk=${this.talk} .part=${part} .texts=${texts}></tl-talk-text>
      ${isCut ? html`<p class="note">${texts.cutOff}</p>` : nothing}`;
  }

  view(part) {
    import("../console/views/view.js"); // loaded with the first view
    const session = this.talk.viewSession(part, this.message.channel);
    return html`<tl-view .session=${session} .entry=${session.entry}></tl-view>`;
  }

  question(part) {
    return html`<tl-talk-question .talk=${this.talk} .part=${part}></tl-talk-question>`;
  }

  file(part) {
    return html`<div class="message-files">${this.#drawFile(part)}</div>`;
  }

  handoff({ to }) {
    return html`<p class="note">${this.talk.texts.handoff(to)}</p>`;
  }

  error() {
    return html`<p class="note wrong" role="alert">${this.talk.texts.failed}</p>`;
  }

  #drawFile(part) {
    return html`<tl-talk-file .talk=${this.talk} .part=${part}></tl-talk-file>`;
  }
}

/** Yield the parts that a participant sees, those of called agents where these were called. */
export function* visibleParts({ parts }, depth = 0) {
  for (const part of parts) {
    if (part.type === "agent") yield* visibleParts(part, depth + 1);
    else if (SHOWN_TYPES.has(part.type) && !(depth > 0 && ROOT_TYPES.has(part.type)) && !isBlank(part)) yield part;
  }
}

const isBlank = ({ type, text }) => type === "text" && text.trim() === "";
const keyOf = ({ id }) => id;
const initial = (name) => Array.from(name)[0]?.toUpperCase() ?? "";

const drawTime = (ts, { locale }) => html`<time datetime=${ts}>${formatShortTime(ts, { locale })}</time>`;

const { prototype: of } = TalkMessage;
const PARTS = {
  text: of.text,
  view: of.view,
  question: of.question,
  approval: of.question,
  file: of.file,
  handoff: of.handoff,
  error: of.error,
};
const SHOWN_TYPES = new Set(Object.keys(PARTS));
const ROOT_TYPES = new Set(["text", "file", "handoff", "error"]); // of a called agent these are its caller's

customElements.define("tl-talk-message", TalkMessage);
