/**
 * `<tl-talk-messages>`: the messages, scrolled to the end while they grow unless the person scrolled up. Of a long
 * conversation the last messages are drawn, earlier ones on demand. Screen readers announce a text once, complete.
 */

import { html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";

import { ConsoleElement } from "../console/ui/base-element.js";
import "./message.js";
import { visibleParts } from "./message.js";

const NEAR_PX = 80; // closer to the end counts as the end
const PAGE_MESSAGES = 60;
const MAX_ANNOUNCED_CHARS = 4000;

export class TalkMessages extends ConsoleElement {
  static properties = {
    talk: { attribute: false },
    snapshot: { attribute: false },
    atEnd: { state: true },
    count: { state: true },
  };
  #lastScrollTop = 0;
  #sizes = new ResizeObserver(() => this.#keepAtEnd());

  constructor() {
    super();
    Object.assign(this, { atEnd: true, count: PAGE_MESSAGES });
  }

  firstUpdated() {
    this.#sizes.observe(this.#scroller);
    this.#sizes.observe(this.#scroller.firstElementChild);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.#sizes.disconnect();
  }

  get #scroller() {
    return this.querySelector(".scroller");
  }

  get #pixelsBelow() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  #keepAtEnd() {
    if (this.atEnd) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#lastScrollTop = this.#scroller.scrollTop;
  }

  scrollToEnd() {
    this.atEnd = true;
    this.#keepAtEnd();
  }

  /** Only scrolling up detaches from the end: growing content moves the end, too. */
  #onScroll() {
    const { scrollTop } = this.#scroller;
    if (this.#pixelsBelow <= NEAR_PX) this.atEnd = true;
    else if (scrollTop < this.#lastScrollTop) this.atEnd = false;
    this.#lastScrollTop = scrollTop;
  }

  /** Draw earlier messages above, without moving what is read. */
  async #showEarlier() {
    const scroller = this.#scroller;
    const below = scroller.scrollHeight - scroller.scrollTop;
    this.atEnd = false;
    this.count += PAGE_MESSAGES;
    await this.updateComplete;
    scroller.scrollTop = scroller.scrollHeight - below;
    this.querySelector("tl-talk-message")?.querySelector("article")?.scrollIntoView?.({ block: "nearest" });
  }

  /** Show the first open question, and focus it. */
  showQuestion() {
    const question = [...this.querySelectorAll("tl-talk-question form")].at(-1);
    if (!question) return;
    this.atEnd = false;
    question.scrollIntoView({ block: "center" });
    question.querySelector("button, input, select, textarea")?.focus();
  }

  render() {
    const { talk, snapshot } = this;
    const { texts } = talk;
    const all = [...snapshot.messages.filter(isShown), ...snapshot.queue];
    const shown = all.slice(-this.count);
    return html`<div class="scroller" role="log" aria-label=${texts.messages} aria-live="off"
        aria-busy=${snapshot.status === "running"} tabindex="0" @scroll=${this.#onScroll}>
        <div class="content">
          ${all.length > shown.length ? html`<button type="button" class="earlier" @click=${this.#showEarlier}>${texts.showEarlier}</button>` : nothing}
          ${all.length === 0 ? this.#drawEmpty() : nothing}
          ${repeat(
            shown,
            ({ id }) => id,
            (message, at) => html`<tl-talk-message .talk=${talk} .message=${message} .members=${snapshot.members}
              .isClosed=${talk.isClosed}
              .isContinued=${continues(shown[at - 1], message)}></tl-talk-message>`,
          )}
          ${this.#drawWorkers()}
        </div>
      </div>
      ${this.atEnd ? nothing : html`<button type="button" class="latest" @click=${this.scrollToEnd}>${texts.latest}</button>`}
      <p class="unseen" role="status">${lastCompleteText(all)}</p>`;
  }

  #drawEmpty() {
    const { texts } = this.talk;
    if (this.snapshot.hasHistory) return html`<p class="blank">${texts.empty}</p>`;
    return html`<div class="skeleton" role="img" aria-label=${texts.loading}><i></i><i></i><i></i></div>`;
  }

  /** Draw who works or writes. */
  #drawWorkers() {
    const { snapshot, talk } = this;
    if (snapshot.status !== "running") return nothing;
    const { texts } = talk;
    const current = snapshot.messages.findLast(
      (message) => message.role === "assistant" && message.state === "running",
    );
    const isWriting = current?.parts.at(-1)?.state === "streaming" && current.parts.at(-1).type === "text";
    const name = current?.agent_name ?? snapshot.agents[0]?.agent_name ?? texts.assistant;
    return html`<p class="worker" role="status"><span class="dots" aria-hidden="true"><i></i><i></i><i></i></span>
      ${isWriting ? texts.writing(name) : texts.working(name)}</p>`;
  }
}

/** Whether a participant sees something of a message. */
const isShown = (message) =>
  message.role === "user" || message.ending?.stop_reason === "cancelled" || !visibleParts(message).next().done;

/** Whether a message goes on where the one before ended. */
const continues = (before, { role, author, agent_name }) =>
  before !== undefined &&
  before.role === role &&
  role !== "event" &&
  (role === "user" ? before.author === author : before.agent_name === agent_name);

/** Return the last complete text of an agent, for screen readers. */
function lastCompleteText(messages) {
  const message = messages.findLast(({ role }) => role === "assistant");
  const part =
    message && [...visibleParts(message)].findLast(({ type, state }) => type === "text" && state !== "streaming");
  return part ? part.text.slice(0, MAX_ANNOUNCED_CHARS) : "";
}

customElements.define("tl-talk-messages", TalkMessages);
