/**
 * `<tl-chat>`: what was said and done in a session, and where a person answers.
 *
 * It stays at the end while it grows, unless somebody has scrolled away; sending leads back. Screen readers hear a
 * message once, when it is complete. "show-in-chat" with a seq, from anywhere in the page, leads to the entry
 * that tells of the event, at any depth.
 */

import { html, nothing } from "lit";

import { humanizeName, shortText } from "../store/labels.js";
import { SessionElement } from "../ui/base-element.js";
import { hasWorkingAgent } from "./composer.js";
import "./entry-list.js";

const NEAR_PX = 80; // from the end: still at the end
const TOP_PX = 40; // from the beginning: what is earlier is wanted
const MAX_JUMPS = 5;
const MAX_ANNOUNCED_CHARS = 4000;
const HIGHLIGHT_MS = 2500;

export class Chat extends SessionElement {
  static properties = { attached: { state: true }, unseen: { state: true } };
  showsLive = true;
  #lastScrollTop = 0; // where it was scrolled to
  #sizeObserver = new ResizeObserver(() => this.#keepAtEnd());
  #onShowInChat = ({ detail }) => this.#showEvent(detail);
  #onImageLoad = ({ target }) => target.matches("img") && this.#resizeImage(target);
  #isRevealing = false;

  constructor() {
    super();
    Object.assign(this, { attached: true, unseen: false });
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
    this.session.firstAnswer.then(() => import("./message-text.js")); // most of the script: asking for the log comes first
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

  /** Its size has changed: be at the end still, or say that there is more. */
  #keepAtEnd() {
    const scroller = this.#scroller;
    if (this.attached) scroller.scrollTop = scroller.scrollHeight;
    else this.unseen = this.#pixelsBelow > NEAR_PX;
    this.#lastScrollTop = scroller.scrollTop;
  }

  /** Give a picture its own size; what is read stays where it is, also where a browser has no scroll anchoring. */
  #resizeImage(picture) {
    const scroller = this.#scroller;
    const isAbove = picture.getBoundingClientRect().bottom < scroller.getBoundingClientRect().top;
    const { scrollTop, scrollHeight } = scroller;
    picture.classList.add("loaded");
    if (isAbove && !this.attached) scroller.scrollTop = scrollTop + scroller.scrollHeight - scrollHeight;
  }

  /** Pixels below what is seen. */
  get #pixelsBelow() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  /** Only who scrolls up leaves the end: what grows moves it away as well. */
  #onScroll() {
    const { scrollTop } = this.#scroller;
    if (this.#pixelsBelow <= NEAR_PX) this.#attach();
    else if (scrollTop < this.#lastScrollTop) this.attached = false;
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

  /** Show what is earlier above what is seen, which stays where it is. */
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
    const entry = event && log.conversation.find(event);
    if (entry) this.#showEntry(entry);
  }

  /** Scroll to an entry, opening what it stands in. */
  async #showEntry(entry) {
    const path = [];
    for (let each = entry; each; each = each.inside.owner) path.unshift(each);
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
    if (this.#pixelsBelow <= NEAR_PX) this.#attach(); // it is at the end: nothing scrolls, and it goes on following
    found.focus({ preventScroll: true });
    found.classList.add("found");
    setTimeout(() => found.classList.remove("found"), HIGHLIGHT_MS);
  }

  render() {
    const {
      conversation: { thread, waiting, queue },
      tree,
    } = this.session.log;
    return html`<div class="chat">
      <h2 class="unseen">Chat</h2>
      <div class="scroller ${this.attached ? "end" : ""}" role="log" aria-label="Conversation" aria-live="off"
        aria-busy=${hasWorkingAgent(tree)} tabindex="0" @scroll=${this.#onScroll}>
        <div class="content">
          ${thread.entries.length ? nothing : this.#drawEmpty()}
          <tl-flow .session=${this.session} .thread=${thread} .version=${{}}
            .attached=${this.attached}></tl-flow>
          ${this.#drawSuggestions(thread)}
        </div>
      </div>
      <p class="unseen" role="status">${lastCompleteText(thread)}</p>
      <div class="foot">
        ${this.unseen ? html`<button class="more" @click=${this.#scrollToEnd}>Latest</button>` : nothing}
        ${waiting.size ? this.#drawPendingCalls([...waiting]) : nothing}
        ${queue.length ? drawQueue(queue) : nothing}
        <tl-composer .session=${this.session} @sent=${this.#scrollToEnd}></tl-composer>
      </div>
    </div>`;
  }

  /** A session is empty only if its history is known. */
  #drawEmpty() {
    if (this.session.hasHistory) return html`<p class="blank">No messages yet.</p>`;
    return html`<div class="skeleton" role="img" aria-label="The conversation is loading"><i></i><i></i><i></i></div>`;
  }

  #drawSuggestions({ entries }) {
    const {
      app: { tries },
      hasHistory,
      connection,
    } = this.session;
    if (!hasHistory || !tries.length || entries.some(({ kind }) => kind === "message")) return nothing;
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
            html`<button @click=${() => this.#showEntry(call)}>Show ${humanizeName(call.tool).toLowerCase()}</button>`,
        )}
    </div>`;
  }
}

/** The messages that wait for their turn, next to where they were written. */
const drawQueue = (entries) =>
  html`<ul class="queue" aria-label="Queued messages">${entries.map(
    ({ payload, seq }) => html`
  <li data-seq=${seq}><span class="chip">Queued</span> <span class="gist">${shortText(payload.text)}</span></li>`,
  )}</ul>`;

/** The last text that is complete, for those who listen. */
function lastCompleteText({ entries }) {
  const last = entries.findLast(({ kind, open }) => kind === "text" && !open);
  return last ? last.text.slice(0, MAX_ANNOUNCED_CHARS) : "";
}

/** The thread inside an element, with the folds around it open. */
function openThreadIn(element) {
  const thread = element.querySelector("tl-flow");
  const foldOf = (inner) => inner?.closest("details");
  for (let fold = foldOf(thread); fold && element.contains(fold); fold = foldOf(fold.parentElement)) fold.open = true;
  return thread;
}

/** Wait until an entry and what it holds have been drawn. */
async function waitUntilDrawn(element) {
  await element.updateComplete;
  await element.querySelector?.("tl-call")?.updateComplete;
  await element.querySelector?.("tl-flow")?.updateComplete;
}

customElements.define("tl-chat", Chat);
