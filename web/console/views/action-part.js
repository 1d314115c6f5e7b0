/**
 * The base of a view's form, table and button: one action at a time, validated before it is sent, confirmed first if
 * the node says so, with errors at their places.
 */

import { html, nothing } from "lit";

import { OpenViews, viewKey } from "../../client/views/views.js";
import { openDraft } from "../app/storage.js";
import { ConsoleElement } from "../ui/base-element.js";
import { responseProblems } from "./errors.js";
import { Submissions } from "./submissions.js";
import { viewTextsOf } from "./texts.js";

let count = 0;

export class ActionPart extends ConsoleElement {
  static properties = {
    session: { attribute: false },
    entry: { attribute: false },
    node: { attribute: false },
    stamp: { attribute: false },
    sending: { state: true },
    onConfirm: { state: true },
    problems: { state: true },
  };
  #lastSeq = -1; // the seq of the last action: the next one waits until the log has it

  constructor() {
    super();
    count += 1;
    this.key = `view${count}`; // of the ids of its inputs
    Object.assign(this, { sending: false, onConfirm: null, problems: null });
  }

  get texts() {
    return viewTextsOf(this.session);
  }

  get draft() {
    return openDraft(this.session.id, this.entry.event_id, this.node.id);
  }

  /** The open view of this entry; null if it is closed, or its event has not come. */
  get openView() {
    const {
      channel,
      view: { view_id },
    } = this.entry;
    const view = this.session.log.fold(OpenViews).open.get(viewKey(channel, view_id));
    return view?.event_id === this.entry.event_id ? view : null;
  }

  /** The last action on this part, or null. */
  get lastAction() {
    const {
      channel,
      view: { view_id },
    } = this.entry;
    return this.session.log.fold(Submissions).forView(view_id, channel).actions.get(this.node.id) ?? null;
  }

  /** Whether the part has been used and takes no further action. */
  get isUsed() {
    return this.openView?.used.has(this.node.id) ?? false;
  }

  get isBusy() {
    return this.sending || this.session.log.last < this.#lastSeq;
  }

  /** Validate, confirm and send an action. `place` maps problems to their places. */
  act(action, place, found = this.#validate(action)) {
    this.onConfirm = null;
    if (this.isBusy) return;
    if (found.length > 0) this.#showErrors(place(found, this.texts));
    else if (this.node.confirm) this.#askConfirmation(() => this.#send(action, place));
    else this.#send(action, place);
  }

  #validate(action) {
    const { log } = this.session;
    if (log.last < this.entry.seq) return []; // the history is incomplete: let the server decide
    const {
      channel,
      event_id,
      view: { view_id },
    } = this.entry;
    return log.fold(OpenViews).validateAction({ view_id, shown: event_id, action }, channel);
  }

  async #send(action, place) {
    Object.assign(this, { sending: true, onConfirm: null, problems: null });
    const { client, id } = this.session;
    try {
      this.#lastSeq = await client.submitView(id, this.entry.view.view_id, action, { shown: this.entry.event_id });
      this.draft.clear();
      this.onSubmitted();
    } catch (error) {
      this.#showErrors(place(responseProblems(error, this.texts), this.texts));
    } finally {
      this.sending = false;
    }
  }

  /** Called after an action was sent. */
  onSubmitted() {}

  /** Show errors, and focus the first unless the person has moved elsewhere. */
  async #showErrors(places) {
    const { activeElement } = this.getRootNode();
    const isHere = activeElement === null || activeElement.contains(this) || this.contains(activeElement);
    this.problems = places;
    await this.whenDrawn();
    if (isHere) this.querySelector("[aria-invalid=true], [role=alert]")?.focus();
  }

  /** Wait until all inputs are drawn. */
  async whenDrawn() {
    while (!(await this.updateComplete));
  }

  /** Remove the error of an edited place. */
  clearError(place) {
    if (this.onConfirm === null && !this.problems?.has(place)) return;
    this.onConfirm = null;
    this.problems = new Map([...(this.problems ?? [])].filter(([key]) => key !== place));
  }

  async #askConfirmation(go) {
    this.onConfirm = go;
    await this.updateComplete;
    this.querySelector(".confirm button:last-of-type")?.focus(); // focus Cancel: a key that is held down does no harm
  }

  /** Draw the button, or the confirmation that it asks for. */
  renderAction(button, words) {
    if (this.onConfirm === null) return button;
    const leave = () => (this.onConfirm = null);
    return html`<div class="confirm" role="group" aria-label=${this.node.confirm}
      @keydown=${({ key }) => key === "Escape" && leave()}>
      <p>${this.node.confirm}</p>
      <button type="button" class=${this.node.style === "danger" ? "danger" : "strong"}
        @click=${() => this.onConfirm()}>${words}</button>
      <button type="button" @click=${leave}>${this.texts.cancel}</button>
    </div>`;
  }

  /** Draw the error of the part as a whole. The server's `error` counts until the next action. */
  renderError(error = null) {
    const problem = this.isUsed ? null : (this.problems?.get("") ?? (this.problems ? null : error));
    return problem === null
      ? nothing
      : html`<p class="wrong" role="alert" tabindex="-1">${this.texts.problem(problem)}</p>`;
  }

  renderStatus() {
    const text = this.sending ? this.texts.sending : this.lastAction ? this.texts.sent : "";
    return html`<span class="told" role="status">${text}</span>`;
  }
}
