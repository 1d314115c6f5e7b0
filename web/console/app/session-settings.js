/**
 * `<tl-session-settings>`: the dialog behind *Session*: rename, close and delete. `info` is the session's row in the
 * list. Closing and deleting ask first. `deleted` is dispatched when the session is gone.
 */

import { html, nothing } from "lit";

import { SessionElement } from "../ui/base-element.js";
import "../panels/panels.css";

const MAX_TITLE_BYTES = 128; // as the server has it

/** By step: its title, what it does, the label of its button, and the request. */
const STEPS = {
  close: {
    title: "Close this session?",
    words: "Agents that run or wait are stopped. Members can still read the session, but nobody can continue it.",
    label: "Close session",
    run: (client, id) => client.closeSession(id),
  },
  delete: {
    title: "Delete this session?",
    words:
      "All its messages, events, files and documents are erased for every member. This cannot be undone. Only its id stays, so that it is never used again.",
    label: "Delete session",
    run: (client, id) => client.deleteSession(id),
  },
};

export class SessionSettings extends SessionElement {
  static properties = {
    info: { attribute: false },
    step: { state: true },
    sending: { state: true },
    refusal: { state: true },
    done: { state: true },
  };

  constructor() {
    super();
    this.info = null;
    this.#reset();
  }

  #reset() {
    Object.assign(this, { step: null, sending: false, refusal: "", done: "" });
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (!changed.has("session")) return;
    this.#reset();
    this.#dialog?.close();
  }

  get #dialog() {
    return this.querySelector("dialog");
  }

  async show() {
    this.#reset();
    await this.updateComplete;
    this.#dialog.showModal();
  }

  /** Send a request; return whether the server accepted it. */
  async #send(request) {
    const { session } = this;
    Object.assign(this, { sending: true, refusal: "", done: "" });
    try {
      await request(session.client, session.id);
      this.dispatchEvent(new CustomEvent("sessions-changed", { bubbles: true }));
      return session === this.session;
    } catch (error) {
      this.refusal = error.message;
      return false;
    } finally {
      this.sending = false;
    }
  }

  async #rename(event) {
    event.preventDefault();
    const title = new FormData(event.target).get("title").trim();
    if (new TextEncoder().encode(title).length > MAX_TITLE_BYTES) this.refusal = "This title is too long.";
    else if (title && (await this.#send((client, id) => client.renameSession(id, title)))) this.done = "Renamed";
  }

  async #confirm() {
    const { step } = this;
    if (!(await this.#send(STEPS[step].run))) return;
    this.step = null;
    this.#dialog.close();
    if (step === "delete") this.dispatchEvent(new CustomEvent("deleted"));
  }

  async #ask(step) {
    Object.assign(this, { step, refusal: "", done: "" });
    await this.updateComplete;
    this.querySelector(".cancel").focus(); // a key that is held down does no harm
  }

  render() {
    return html`<dialog aria-labelledby="settings-title">
      <div class="head"><h2 id="settings-title">${this.step ? STEPS[this.step].title : "Session"}</h2>
        <button class="plain" @click=${() => this.#dialog.close()}>Close<span class="unseen"> dialog</span></button></div>
      ${this.step ? this.#drawConfirmation(STEPS[this.step]) : this.#drawSettings()}
      <p class="problem" role="alert">${this.refusal}</p>
    </dialog>`;
  }

  #drawSettings() {
    const may = this.info?.may ?? [];
    const isClosed = this.info?.state === "closed" || this.session?.snapshot.status === "closed";
    return html`${may.includes("rename") && !isClosed ? this.#drawRename() : nothing}
      <p class="soft" role="status">${this.done}</p>
      <p class="row">
        ${isClosed ? html`<span class="grow soft">${this.session.closedText}</span>` : nothing}
        ${may.includes("close") && !isClosed ? html`<button @click=${() => this.#ask("close")}>Close session…</button>` : nothing}
        ${may.includes("delete") ? html`<button class="danger" @click=${() => this.#ask("delete")}>Delete session…</button>` : nothing}
        ${may.length || !this.info ? nothing : html`<span class="soft">Only an owner can rename, close or delete this session.</span>`}
      </p>`;
  }

  #drawRename() {
    return html`<form class="row" @submit=${this.#rename}>
        <label class="grow">Title <input name="title" required maxlength=${MAX_TITLE_BYTES} autocomplete="off"
          .value=${this.session.snapshot.title ?? this.info?.title ?? ""}></label>
        <button ?disabled=${this.sending}>Rename</button>
      </form>`;
  }

  #drawConfirmation({ words, label }) {
    return html`<p>${words}</p>
      <p class="row">
        <button class="danger" ?disabled=${this.sending} @click=${this.#confirm}>${label}</button>
        <button class="cancel" @click=${() => (this.step = null)}>Cancel</button>
        ${this.sending ? html`<span class="soft" role="status">One moment</span>` : nothing}
      </p>`;
  }
}

customElements.define("tl-session-settings", SessionSettings);
