/**
 * `<tl-chat>`: the conversation of a session and the composer.
 *
 * It stays scrolled to the end while it grows, unless the person scrolled up; sending a message scrolls down again.
 * Screen readers announce a message once, when it is complete. The window event `show-in-chat` with a seq scrolls to
 * the entry of that event, at any depth.
 */

import { html, nothing } from "lit";

import { humanizeName, shortText } from "../store/labels.js";
import { SessionElement } from "../ui/base-element.js";
import { findEntry } from "../store/chat-entries.js";
import "./composer.js";
import "./entry-list.js";

const NEAR_PX = 80; // closer to the end counts as the end
const TOP_PX = 40; // closer to the start loads earlier entries
const MAX_JUMPS = 5;
const MAX_ANNOUNCED_CHARS = 4000;
const HIGHLIGHT_MS = 2500;

export class Chat extends SessionElement {
  static properties = { isClosed: { attribute: false }, attached: { state: true }, unseen: { state: true } };
  showsLive = true;
  #lastScrollTop = 0; // where it was scrolled to
  #sizeObserver = new ResizeObserver(() => this.#keepAtEnd());
  #onShowInChat = ({ detail }) => this.#showEvent(detail);
  #onImageLoad = ({ target }) => target.matches("img") && this.#resizeImage(target);
  #isRevealing = false;

  constructor() {
    super();
    Object.assign(this, { isClosed: false, attached: true, unseen: false });
  }

  connectedCallback() {
    super.connectedCallback();
    addEventListener("show-in-chat", this.#onShowInChat);
    for (const type of ["load", "error"]) this.addEventListener(type, this.#onImageLoad, { capture: true });
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener("show-in-chat", this.#onShowInChat);
    this.#sizeObserver.disconnect();
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (!changed.has("session")) return;
    Object.assign(this, { attached: true, unseen: false });
    this.session.firstAnswer.then(() => import("./message-text.js")); // the largest chunk: the request for the log goes first
  }

  firstUpdated() {
    this.#sizeObserver.observe(this.#scroller);
    this.#sizeObserver.observe(this.#scroller.firstElementChild);
  }

  get #scroller() {
    return this.querySelector(".scroller");
  }

  get #entryList() {
    return this.querySelector(".scroller tl-flow");
  }

  /** After a change of size: stay at the end, or offer *Latest*. */
  #keepAtEnd() {
    const scroller = this.#scroller;
    if (this.attached) scroller.scrollTop = scroller.scrollHeight;
    else this.unseen = this.#pixelsBelow > NEAR_PX;
    this.#lastScrollTop = scroller.scrollTop;
  }

  /** Give an image its own size without moving what is read; not every browser has scroll anchoring. */
  #resizeImage(picture) {
    const scroller = this.#scroller;
    const isAbove = picture.getBoundingClientRect().bottom < scroller.getBoundingClientRect().top;
    const { scrollTop, scrollHeight } = scroller;
    picture.classList.add("loaded");
    if (isAbove && !this.attached) scroller.scrollTop = scrollTop + scroller.scrollHeight - scrollHeight;
  }

  /** Pixels of content below the view. */
  get #pixelsBelow() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  /** Only scrolling up detaches from the end and offers *Latest*: growing content moves the end, too. */
  #onScroll() {
    const { scrollTop } = this.#scroller;
    if (this.#pixelsBelow <= NEAR_PX) this.#attach();
    else if (scrollTop < this.#lastScrollTop) Object.assign(this, { attached: false, unseen: true });
    this.#lastScrollTop = scrollTop;
    if (scrollTop < TOP_PX && !this.attached && this.#entryList.hasEarlier) this.#showEarlier();
  }

  #attach() {
    Object.assign(this, { attached: true, unseen: false });
  }

  #scrollToEnd() {
    this.#attach();
    this.#keepAtEnd();
  }

  /** Draw earlier entries above, without moving what is read. */
  async #showEarlier() {
    if (this.#isRevealing) return;
    this.#isRevealing = true;
    this.attached = false;
    const first = this.#entryList.querySelector("tl-entry, .events");
    const place = first.getBoundingClientRect().top;
    await this.#entryList.showEarlier();
    this.#scroller.scrollTop += first.getBoundingClientRect().top - place;
    this.#lastScrollTop = this.#scroller.scrollTop;
    this.#isRevealing = false;
  }

  #showEvent(seq) {
    const { log } = this.session;
    const event = log.events[log.indexOfSeq(seq)];
    if (event) this.#showEntry(findEntry(this.session.entries, event));
  }

  /** Show the call of a question. */
  #showCall({ call_id, agent_id }) {
    this.#showEntry(findEntry(this.session.entries, { agent_id, payload: { call_id } }));
  }

  /** Scroll to the last entry of a path and unfold everything around it. */
  async #showEntry(path) {
    if (path.length === 0) return;
    this.attached = false;
    await this.updateComplete;
    let element = this;
    for (const each of path) {
      element = await openThreadIn(element)?.reveal(each);
      if (!element) return;
      await waitUntilDrawn(element);
    }
    const found = element.querySelector(".entry") ?? element;
    found.scrollIntoView({ block: "center" });
    if (this.#pixelsBelow <= NEAR_PX) this.#attach(); // the entry is at the end: keep following
    found.focus({ preventScroll: true });
    found.classList.add("found");
    setTimeout(() => found.classList.remove("found"), HIGHLIGHT_MS);
  }

  render() {
    const { entries, snapshot } = this.session;
    const { messages, pending, queue } = snapshot;
    return html`<div class="chat">
      <h2 class="unseen">Chat</h2>
      <div class="scroller ${this.attached ? "end" : ""}" role="log" aria-label="Conversation" aria-live="off"
        aria-busy=${this.session.isWorking} tabindex="0" @scroll=${this.#onScroll}>
        <div class="content">
          ${entries.length ? nothing : this.#drawEmpty()}
          <tl-flow .session=${this.session} .entries=${entries} .holders=${messages} .turns=${snapshot.usage.turns}
            .attached=${this.attached}></tl-flow>
          ${this.#drawSuggestions(entries)}
        </div>
      </div>
      <p class="unseen" role="status">${lastCompleteText(entries)}</p>
      <div class="foot">
        ${this.unseen ? html`<button class="more" @click=${this.#scrollToEnd}>Latest</button>` : nothing}
        ${pending.length ? this.#drawPendingCalls(pending) : nothing}
        ${queue.length ? drawQueue(queue) : nothing}
        ${
          this.isClosed
            ? html`<p class="note closed" role="status">${this.session.closedText} It can be read, but not continued.</p>`
            : html`<tl-composer .session=${this.session} @sent=${this.#scrollToEnd}></tl-composer>`
        }
      </div>
    </div>`;
  }

  /** Before the history has come, draw a placeholder: the session may not be empty. */
  #drawEmpty() {
    if (this.session.hasHistory) return html`<p class="blank">No messages yet.</p>`;
    return html`<div class="skeleton" role="img" aria-label="The conversation is loading"><i></i><i></i><i></i></div>`;
  }

  #drawSuggestions(entries) {
    const {
      app: { tries },
      hasHistory,
      connection,
    } = this.session;
    if (!hasHistory || this.isClosed || !tries.length || entries.some(({ kind }) => kind === "message")) return nothing;
    const send = (text) => this.querySelector("tl-composer").send(text);
    return html`<div class="tries" role="group" aria-label="Suggestions">${tries.map(
      (text) => html`
      <button ?disabled=${connection !== "live"} @click=${() => send(text)}>${text}</button>`,
    )}</div>`;
  }

  #drawPendingCalls(calls) {
    return html`<div class="waits" role="group" aria-label="Open questions">
      <p>${calls.length === 1 ? "1 question needs" : `${calls.length} questions need`} your answer</p>
      ${calls
        .slice(0, MAX_JUMPS)
        .map(
          (call) =>
            html`<button @click=${() => this.#showCall(call)}>Show ${humanizeName(call.tool).toLowerCase()}</button>`,
        )}
    </div>`;
  }
}

const drawQueue = (messages) =>
  html`<ul class="queue" aria-label="Queued messages">${messages.map(
    ({ parts, seq }) => html`
  <li data-seq=${seq}><span class="chip">Queued</span> <span class="gist">${shortText(parts[0].text)}</span></li>`,
  )}</ul>`;

/** Return the last complete text, for screen readers. */
function lastCompleteText(entries) {
  const last = entries.findLast(({ kind, state }) => kind === "text" && state !== "streaming");
  return last ? last.text.slice(0, MAX_ANNOUNCED_CHARS) : "";
}

/** Return the entry list inside an element, after unfolding everything around it. */
function openThreadIn(element) {
  const thread = element.querySelector("tl-flow");
  const closestFold = (inner) => inner?.closest("details");
  for (let fold = closestFold(thread); fold && element.contains(fold); fold = closestFold(fold.parentElement))
    fold.open = true;
  return thread;
}

/** Wait until an entry and the elements inside it are drawn. */
async function waitUntilDrawn(element) {
  await element.updateComplete;
  await element.querySelector?.("tl-call")?.updateComplete;
  await element.querySelector?.("tl-flow")?.updateComplete;
}

customElements.define("tl-chat", Chat);
