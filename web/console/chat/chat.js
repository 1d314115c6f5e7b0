/**
 * `<tl-chat>`: what was said and done in a session, and where a person answers.
 *
 * It stays at the end while it grows, unless somebody has scrolled away; sending leads back. Screen readers hear a
 * message once, when it is complete. "show-in-chat" with a seq, from anywhere in the page, leads to the entry
 * that tells of the event, at any depth.
 */

import { html, nothing } from "lit";

import { works } from "./composer.js";
import { SessionElement } from "../ui/base-element.js";
import "./entry-list.js";
import { oneLine, titleOf } from "../store/labels.js";

const NEAR_PX = 80; // from the end: still at the end
const TOP_PX = 40; // from the beginning: what is earlier is wanted
const JUMPS = 5;
const HEARD_CHARS = 4000;
const FOUND_MS = 2500;

export class Chat extends SessionElement {
  static properties = { attached: { state: true }, unseen: { state: true } };
  showsLive = true;
  #top = 0; // where it was scrolled to
  #grown = new ResizeObserver(() => this.#stick());
  #wanted = ({ detail }) => this.#showEvent(detail);
  #sized = ({ target }) => target.matches("img") && this.#resize(target);
  #revealing = false;

  constructor() {
    super();
    Object.assign(this, { attached: true, unseen: false });
  }

  connectedCallback() {
    super.connectedCallback();
    addEventListener("show-in-chat", this.#wanted);
    for (const type of ["load", "error"]) this.addEventListener(type, this.#sized, { capture: true });
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener("show-in-chat", this.#wanted);
    this.#grown.disconnect();
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (!changed.has("session")) return;
    Object.assign(this, { attached: true, unseen: false });
    this.session.answered.then(() => import("./message-text.js")); // most of the script: asking for the log comes first
  }

  firstUpdated() {
    this.#grown.observe(this.#scroller);
    this.#grown.observe(this.#scroller.firstElementChild);
  }

  get #scroller() {
    return this.querySelector(".scroller");
  }

  get #flow() {
    return this.querySelector(".scroller tl-flow");
  }

  /** Its size has changed: be at the end still, or say that there is more. */
  #stick() {
    const scroller = this.#scroller;
    if (this.attached) scroller.scrollTop = scroller.scrollHeight;
    else this.unseen = this.#left > NEAR_PX;
    this.#top = scroller.scrollTop;
  }

  /** Give a picture its own size; what is read stays where it is, also where a browser has no scroll anchoring. */
  #resize(picture) {
    const scroller = this.#scroller;
    const isAbove = picture.getBoundingClientRect().bottom < scroller.getBoundingClientRect().top;
    const { scrollTop, scrollHeight } = scroller;
    picture.classList.add("loaded");
    if (isAbove && !this.attached) scroller.scrollTop = scrollTop + scroller.scrollHeight - scrollHeight;
  }

  /** Pixels below what is seen. */
  get #left() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  /** Only who scrolls up leaves the end: what grows moves it away as well. */
  #scrolled() {
    const { scrollTop } = this.#scroller;
    if (this.#left <= NEAR_PX) this.#attach();
    else if (scrollTop < this.#top) this.attached = false;
    this.#top = scrollTop;
    if (scrollTop < TOP_PX && !this.attached && this.#flow.hasEarlier) this.#earlier();
  }

  #attach() {
    Object.assign(this, { attached: true, unseen: false });
  }

  #toEnd() {
    this.#attach();
    this.#stick();
  }

  /** Show what is earlier above what is seen, which stays where it is. */
  async #earlier() {
    if (this.#revealing) return;
    this.#revealing = true;
    this.attached = false;
    const first = this.#flow.querySelector("tl-entry, .events");
    const place = first.getBoundingClientRect().top;
    await this.#flow.earlier();
    this.#scroller.scrollTop += first.getBoundingClientRect().top - place;
    this.#top = this.#scroller.scrollTop;
    this.#revealing = false;
  }

  #showEvent(seq) {
    const { record } = this.session;
    const event = record.events[record.indexOf(seq)];
    const entry = event && record.conversation.find(event);
    if (entry) this.#show(entry);
  }

  /** Scroll to an entry, opening what it stands in. */
  async #show(entry) {
    const path = [];
    for (let each = entry; each; each = each.inside.owner) path.unshift(each);
    this.attached = false;
    await this.updateComplete;
    let element = this;
    for (const each of path) {
      element = await flowIn(element)?.reveal(each);
      if (!element) return;
      await settled(element);
    }
    const found = element.querySelector(".entry") ?? element;
    found.scrollIntoView({ block: "center" });
    if (this.#left <= NEAR_PX) this.#attach(); // it is at the end: nothing scrolls, and it goes on following
    found.focus({ preventScroll: true });
    found.classList.add("found");
    setTimeout(() => found.classList.remove("found"), FOUND_MS);
  }

  render() {
    const {
      conversation: { flow, waiting, queue },
      tree,
    } = this.session.record;
    return html`<div class="chat">
      <h2 class="unseen">Chat</h2>
      <div class="scroller ${this.attached ? "end" : ""}" role="log" aria-label="Conversation" aria-live="off"
        aria-busy=${works(tree)} tabindex="0" @scroll=${this.#scrolled}>
        <div class="content">
          ${flow.entries.length ? nothing : this.#blank()}
          <tl-flow .session=${this.session} .flow=${flow} .version=${{}}
            .attached=${this.attached}></tl-flow>
          ${this.#tries(flow)}
        </div>
      </div>
      <p class="unseen" role="status">${heard(flow)}</p>
      <div class="foot">
        ${this.unseen ? html`<button class="more" @click=${this.#toEnd}>Latest</button>` : nothing}
        ${waiting.size ? this.#waiting([...waiting]) : nothing}
        ${queue.length ? queued(queue) : nothing}
        <tl-composer .session=${this.session} @sent=${this.#toEnd}></tl-composer>
      </div>
    </div>`;
  }

  /** A session is empty only if its history is known. */
  #blank() {
    if (this.session.hasHistory) return html`<p class="blank">Nothing has been said yet.</p>`;
    return html`<div class="skeleton" role="img" aria-label="The conversation is loading"><i></i><i></i><i></i></div>`;
  }

  #tries({ entries }) {
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

  #waiting(calls) {
    return html`<div class="waits" role="group" aria-label="What waits for you">
      <p>${calls.length === 1 ? "1 thing waits" : `${calls.length} things wait`} for you</p>
      ${calls
        .slice(0, JUMPS)
        .map(
          (call) => html`<button @click=${() => this.#show(call)}>Show ${titleOf(call.tool).toLowerCase()}</button>`,
        )}
    </div>`;
  }
}

/** The messages that wait for their turn, next to where they were written. */
const queued = (entries) =>
  html`<ul class="queue" aria-label="Queued messages">${entries.map(
    ({ payload, seq }) => html`
  <li data-seq=${seq}><span class="chip">Queued</span> <span class="gist">${oneLine(payload.text)}</span></li>`,
  )}</ul>`;

/** The last text that is complete, for those who listen. */
function heard({ entries }) {
  const last = entries.findLast(({ kind, open }) => kind === "text" && !open);
  return last ? last.text.slice(0, HEARD_CHARS) : "";
}

/** The flow inside an element, with the folds around it open. */
function flowIn(element) {
  const flow = element.querySelector("tl-flow");
  const foldOf = (inner) => inner?.closest("details");
  for (let fold = foldOf(flow); fold && element.contains(fold); fold = foldOf(fold.parentElement)) fold.open = true;
  return flow;
}

/** Wait until an entry and what it holds have been drawn. */
async function settled(element) {
  await element.updateComplete;
  await element.querySelector?.("tl-call")?.updateComplete;
  await element.querySelector?.("tl-flow")?.updateComplete;
}

customElements.define("tl-chat", Chat);
