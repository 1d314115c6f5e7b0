/**
 * What a form, a table and a button of a view have in common: they act once at a time, are checked before anything is
 * sent, ask before if they are told to, and say at the place what is wrong.
 */

import { html, nothing } from "lit";

import { OpenViews, viewKey } from "../../client/views/views.js";
import { draftAt } from "../app/drafts.js";
import { Element } from "../ui/base-element.js";
import { problemsOf } from "./errors.js";
import { Sent } from "./submissions.js";

let count = 0;

export class Part extends Element {
  static properties = {
    session: { attribute: false },
    entry: { attribute: false },
    node: { attribute: false },
    stamp: { attribute: false },
    sending: { state: true },
    asked: { state: true },
    problems: { state: true },
  };
  #last = -1; // the seq of what was sent: until it has come back, nothing more is

  constructor() {
    super();
    count += 1;
    this.key = `view${count}`; // of the ids of its inputs
    Object.assign(this, { sending: false, asked: null, problems: null });
  }

  get draft() {
    return draftAt(this.session.id, this.entry.event_id, this.node.id);
  }

  /** The view as the log knows it; null when it is not open, or not known yet. */
  get shown() {
    const {
      channel,
      view: { view_id },
    } = this.entry;
    const view = this.session.record.fold(OpenViews).open.get(viewKey(channel, view_id));
    return view?.event_id === this.entry.event_id ? view : null;
  }

  /** What was sent last, if anything was. */
  get sent() {
    const {
      channel,
      view: { view_id },
    } = this.entry;
    return this.session.record.fold(Sent).on(view_id, channel).actions.get(this.node.id) ?? null;
  }

  /** Whether it cannot be sent any more. */
  get isUsed() {
    return this.shown?.used.has(this.node.id) ?? false;
  }

  get isBusy() {
    return this.sending || this.session.record.last < this.#last;
  }

  /** Send an action, after the question if there is one; `place` brings problems to their places. */
  act(action, place, found = this.#check(action)) {
    this.asked = null;
    if (this.isBusy) return;
    if (found.length > 0) this.#refuse(place(found));
    else if (this.node.confirm) this.#ask(() => this.#send(action, place));
    else this.#send(action, place);
  }

  #check(action) {
    const { record } = this.session;
    if (record.last < this.entry.seq) return []; // history is on its way: the server knows
    const {
      channel,
      event_id,
      view: { view_id },
    } = this.entry;
    return record.fold(OpenViews).validateAction({ view_id, shown: event_id, action }, channel);
  }

  async #send(action, place) {
    Object.assign(this, { sending: true, asked: null, problems: null });
    const { client, id } = this.session;
    try {
      this.#last = await client.submitView(id, this.entry.view.view_id, action, { shown: this.entry.event_id });
      this.draft.clear();
      this.taken();
    } catch (error) {
      this.#refuse(place(problemsOf(error)));
    } finally {
      this.sending = false;
    }
  }

  /** What was typed has been sent. */
  taken() {}

  /** Say what is wrong, and go there unless the person is somewhere else by now. */
  async #refuse(places) {
    const { activeElement } = document;
    const isHere = activeElement.contains(this) || this.contains(activeElement);
    this.problems = places;
    await this.revealed();
    if (isHere) this.querySelector("[aria-invalid=true], [role=alert]")?.focus();
  }

  /** When everything is drawn that can be wrong. */
  async revealed() {
    while (!(await this.updateComplete));
  }

  /** A problem of a place goes when it is edited. */
  edited(place) {
    if (this.asked === null && !this.problems?.has(place)) return;
    this.asked = null;
    this.problems = new Map([...(this.problems ?? [])].filter(([key]) => key !== place));
  }

  async #ask(go) {
    this.asked = go;
    await this.updateComplete;
    this.querySelector(".confirm button:last-of-type")?.focus(); // a key that is held down does no harm
  }

  /** The question before, or the button. */
  foot(button, words) {
    if (this.asked === null) return button;
    const leave = () => (this.asked = null);
    return html`<div class="confirm" role="group" aria-label=${this.node.confirm}
      @keydown=${({ key }) => key === "Escape" && leave()}>
      <p>${this.node.confirm}</p>
      <button type="button" class=${this.node.style === "danger" ? "danger" : "strong"}
        @click=${() => this.asked()}>${words}</button>
      <button type="button" @click=${leave}>Cancel</button>
    </div>`;
  }

  /** What is wrong with all of it; what the server said about the last answer counts until there is another. */
  whole(error = null) {
    const problem = this.isUsed ? null : (this.problems?.get("") ?? (this.problems ? null : error));
    return problem === null ? nothing : html`<p class="wrong" role="alert" tabindex="-1">${problem}</p>`;
  }

  status(words = "Sent") {
    const said = this.sending ? "Sending" : this.sent ? words : "";
    return html`<span class="told" role="status">${said}</span>`;
  }
}
