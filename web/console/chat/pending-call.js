/**
 * `<tl-ask>`: the question of a pending call, inside its card: an approval, an input, a choice, yes or no, any answer
 * (`pending-call-kinds.js`). It closes, in every tab, when the answer is in the log. Arguments and questions are drawn
 * as text.
 */

import { html, nothing } from "lit";
import { live } from "lit/directives/live.js";

import { validateField } from "../../client/views/fields.js";
import { openDraft } from "../app/storage.js";
import { humanizeName, riskLabel } from "../store/labels.js";
import { ConsoleElement } from "../ui/base-element.js";
import { drawFacts, labelledPairs } from "../ui/fact-list.js";
import { formatDateTime, utcTooltip } from "../ui/time-format.js";
import { drawField, hasIncompleteInput } from "../views/field.js";
import { inputText, parseValue } from "../views/values.js";
import { inputFields, parseChoices, pendingCallKind, promptText, questionKey } from "./pending-call-kinds.js";
import "../views/views.css";

const LATE_STATUSES = new Set([404, 409]);
const LATE_MESSAGE = "This was already answered elsewhere.";
const SKIP_FAULT = { code: "CANCELLED", message: "The user cannot answer this." };
let count = 0;

export class PendingCallForm extends ConsoleElement {
  static properties = {
    session: { attribute: false },
    call: { attribute: false },
    version: { attribute: false },
    sending: { state: true },
    sent: { state: true },
    problem: { state: true },
    problems: { state: true },
  };
  #texts = new Map();
  #question = null;

  constructor() {
    super();
    count += 1;
    this.key = `ask${count}`; // of the ids of its inputs
    Object.assign(this, { sending: false, sent: false, problem: null, problems: new Map() });
  }

  get #draft() {
    return openDraft(this.session.id, this.call.event_id, this.#question);
  }

  /** A call may ask a second question: then reset the form. */
  willUpdate() {
    if (this.call.state !== "waiting") return;
    const question = questionKey(this.call);
    if (question === this.#question) return;
    this.#question = question;
    const typed = this.#draft.read();
    this.#texts = new Map(Array.isArray(typed) ? typed : []);
    Object.assign(this, { sent: false, problem: null, problems: new Map() });
  }

  #typedText(name) {
    return String(this.#texts.get(name) ?? "");
  }

  #onType(name, text) {
    this.#texts.set(name, text);
    this.#draft.write([...this.#texts]);
    this.problems = new Map([...this.problems].filter(([key]) => key !== name));
  }

  async #send(work) {
    if (this.sending || this.sent) return;
    Object.assign(this, { sending: true, problem: null });
    // the call may ask the next question before the response
    const question = this.#question;
    const draft = this.#draft;
    try {
      await work(this.session.client, this.session.id);
      draft.clear();
      if (question === this.#question) this.sent = true;
    } catch (error) {
      const words = LATE_STATUSES.has(error.status) ? LATE_MESSAGE : `Not sent: ${error.message}`;
      if (question === this.#question) this.problem = words;
    } finally {
      this.sending = false;
    }
  }

  render() {
    if (this.call.state !== "waiting") return nothing;
    const kind = pendingCallKind(this.call);
    return html`<form class="sheet ask" novalidate autocomplete="off" data-kind=${kind}
      aria-label="${TITLES[kind]}: ${this.call.tool}" @submit=${(event) => event.preventDefault()}>
      <fieldset ?disabled=${this.sending || this.sent}>
        <p class="title">${TITLES[kind]}</p>
        ${RENDERERS[kind].call(this, this.call)}
      </fieldset>
      ${this.problem ? html`<p class="wrong" role="alert">${this.problem}</p>` : nothing}
      <span class="told" role="status">${this.sending ? "Sending" : this.sent ? "Sent" : ""}</span>
    </form>`;
  }

  // may it run?

  approval({ approval, args, tool }) {
    const { risk, reason, roles = [], expires_at } = approval;
    const { words, isSafe } = riskLabel(risk);
    const decide = (decision) =>
      this.#send((client, id) => client.decide(id, approval, decision, this.#typedText("note") || undefined));
    return html`
      <dl class="facts">
        <dt>Tool</dt><dd title=${tool}>${humanizeName(tool)}</dd>
        <dt>Risk</dt><dd class=${isSafe ? "" : "risk"}>${words}</dd>
        ${reason ? html`<dt>What it does</dt><dd>${reason}</dd>` : nothing}
        <dt>Who may decide</dt><dd>${roles.length > 0 ? roles.join(", ") : "Every member of this session"}</dd>
        ${expires_at ? html`<dt>Expires</dt><dd title=${utcTooltip(expires_at)}>${formatDateTime(expires_at)}</dd>` : nothing}
      </dl>
      ${this.#drawArguments(args)}
      ${this.#drawField({ type: "field.text", name: "note", label: "Note (optional)" })}
      <div class="doing">
        <button type="button" class=${isSafe ? "strong" : "danger"} @click=${() => decide("approve")}>Approve</button>
        <button type="button" @click=${() => decide("deny")}>Deny</button>
      </div>`;
  }

  #drawArguments(args) {
    const pairs = labelledPairs(args);
    return html`<div class="args" tabindex="0" role="region" aria-label="Arguments">
      ${pairs.length > 0 ? drawFacts(pairs) : "No arguments"}</div>`;
  }

  // a tool in the server asks

  input({ awaited }) {
    const fields = inputFields(awaited.args);
    return html`${fields.map((field, at) => this.#drawField(field, at))}
      <div class="doing"><button class="strong" @click=${() => this.#submitInput(fields)}>Send</button></div>`;
  }

  #submitInput(fields) {
    const values = fields.map((field) => [field.name, parseValue(field, this.#fieldText(field))]);
    this.problems = new Map(
      fields.flatMap((field, at) => {
        const sentence = this.#isIncomplete(at) ? "is not complete" : validateField(field, values[at][1]);
        return sentence ? [[field.name, `${field.label} ${sentence}`]] : [];
      }),
    );
    if (this.problems.size > 0) return void this.#focusFirstError();
    this.#send((client, id) => client.submitInput(id, this.call, Object.fromEntries(values)));
  }

  async #focusFirstError() {
    await this.updateComplete;
    this.querySelector("[aria-invalid]")?.focus();
  }

  #isIncomplete(at) {
    return hasIncompleteInput(this.querySelectorAll(".field")[at]);
  }

  #fieldText(field) {
    return this.#texts.has(field.name) ? this.#typedText(field.name) : inputText(field, field.value);
  }

  #drawField(field, at = 0) {
    return drawField(field, {
      id: `${this.key}-${at}`,
      first: inputText(field, field.value),
      text: this.#fieldText(field),
      problem: this.problems.get(field.name),
      tell: (text) => this.#onType(field.name, text),
    });
  }

  // a tool of the page

  #answer(result) {
    this.#send((client, id) => client.answer(id, this.call, result));
  }

  #skip() {
    this.#send((client, id) => client.fail(id, this.call, SKIP_FAULT));
  }

  get #skipButton() {
    return html`<button type="button" class="plain" @click=${() => this.#skip()}>Skip</button>`;
  }

  #drawQuestion({ args }) {
    const words = promptText({ args });
    return words === null ? this.#drawArguments(args) : html`<p class="words">${words}</p>`;
  }

  choice({ awaited }) {
    return html`${this.#drawQuestion(awaited)}
      <div class="doing">
        ${parseChoices(awaited.args).map(
          ({ value, label }) => html`<button type="button"
          @click=${() => this.#answer(value)}>${label}</button>`,
        )}
        ${this.#skipButton}
      </div>
      ${this.#drawOtherAnswer()}`;
  }

  confirm({ awaited }) {
    return html`${this.#drawQuestion(awaited)}
      <div class="doing">
        <button type="button" class="strong" @click=${() => this.#answer(true)}>Yes</button>
        <button type="button" @click=${() => this.#answer(false)}>No</button>
        ${this.#skipButton}
      </div>
      ${this.#drawOtherAnswer()}`;
  }

  answer({ awaited }) {
    return html`${this.#drawQuestion(awaited)} ${this.#drawAnswerBox(this.#skipButton)}`;
  }

  /** Offer an answer beyond the buttons. */
  #drawOtherAnswer() {
    return html`<details ?open=${this.#texts.size > 0}>
      <summary>Another answer</summary>${this.#drawAnswerBox(nothing)}</details>`;
  }

  #drawAnswerBox(more) {
    const isJson = this.#typedText("json") === "yes";
    return html`${this.#drawField({ type: "field.text", name: "answer", label: "Answer", multiline: true })}
      <label class="check"><input type="checkbox" .checked=${live(isJson)}
        @change=${({ target }) => this.#onType("json", target.checked ? "yes" : "")}> The answer is JSON</label>
      <div class="doing"><button class="strong" @click=${() => this.#submitAnswer(isJson)}>Send</button> ${more}</div>`;
  }

  #submitAnswer(isJson) {
    const text = this.#typedText("answer");
    try {
      this.#answer(isJson ? JSON.parse(text) : text);
    } catch (error) {
      this.problems = new Map([["answer", `This is not JSON: ${error.message}`]]);
      this.#focusFirstError();
    }
  }
}

const TITLES = {
  approval: "May this run?",
  input: "The tool needs input",
  choice: "Please choose",
  confirm: "Please confirm",
  answer: "Please answer",
};
const { prototype: of } = PendingCallForm;
const RENDERERS = { approval: of.approval, input: of.input, choice: of.choice, confirm: of.confirm, answer: of.answer };

customElements.define("tl-ask", PendingCallForm);
