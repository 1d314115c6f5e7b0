/**
 * The form of a question to a person: an approval, an input, a choice, yes or no, any answer
 * (`pending-call-kinds.js`). The console and the page of participants share it; each brings its texts, draws its
 * approvals and its answer box, and says how an answer is sent. What is typed survives a reload. Questions are drawn as
 * text.
 *
 * A form has `kind`, `args` (of the question), `texts` and `draft`, and the methods `drawApproval`, `drawArguments`,
 * `drawAnswerBox`, `sendValues`, `sendAnswer` and `sendFault`. Its `willUpdate` calls `openQuestion`.
 */

import { html, nothing } from "lit";

import { validateField } from "../../client/views/fields.js";
import { ConsoleElement } from "../ui/base-element.js";
import { drawField, hasIncompleteInput } from "../views/field.js";
import { inputText, parseValue } from "../views/values.js";
import { inputFields, parseChoices, promptText } from "./pending-call-kinds.js";
import "../views/views.css";

const LATE_STATUSES = new Set([404, 409]);
const SKIP_FAULT = { code: "CANCELLED", message: "The user cannot answer this." };
let count = 0;

export class QuestionForm extends ConsoleElement {
  static properties = {
    sending: { state: true },
    sent: { state: true },
    problem: { state: true },
    problems: { state: true },
  };
  #typed = new Map();
  #question = null;

  constructor() {
    super();
    count += 1;
    this.key = `question${count}`; // of the ids of its inputs
    Object.assign(this, { sending: false, sent: false, problem: null, problems: new Map() });
  }

  /** The key of the question that the form is for; null before the first. */
  get question() {
    return this.#question;
  }

  /** A call may ask a second question: then reset the form. */
  openQuestion(question) {
    if (question === this.#question) return;
    this.#question = question;
    const stored = this.draft.read();
    this.#typed = new Map(Array.isArray(stored) ? stored : []);
    Object.assign(this, { sent: false, problem: null, problems: new Map() });
  }

  get heading() {
    return this.texts[`${this.kind}Title`];
  }

  typedText(name) {
    return String(this.#typed.get(name) ?? "");
  }

  onType(name, text) {
    this.#typed.set(name, text);
    this.draft.write([...this.#typed]);
    this.problems = new Map([...this.problems].filter(([key]) => key !== name));
  }

  async send(work) {
    if (this.sending || this.sent) return;
    Object.assign(this, { sending: true, problem: null });
    // the call may ask the next question before the response
    const question = this.#question;
    const { draft, texts } = this;
    try {
      await work();
      draft.clear();
      if (question === this.#question) this.sent = true;
    } catch (error) {
      const words = LATE_STATUSES.has(error.status) ? texts.answeredElsewhere : texts.view.notSent(error.message);
      if (question === this.#question) this.problem = words;
    } finally {
      this.sending = false;
    }
  }

  drawForm(name, label) {
    const { kind, texts } = this;
    return html`<form class="sheet ${name}" novalidate autocomplete="off" data-kind=${kind} aria-label=${label}
      @submit=${(event) => event.preventDefault()}>
      <fieldset ?disabled=${this.sending || this.sent}>
        <p class="title">${this.heading}</p>
        ${RENDERERS[kind](this)}
      </fieldset>
      ${this.problem ? html`<p class="wrong" role="alert">${this.problem}</p>` : nothing}
      <span class="told" role="status">${this.sending ? texts.view.sending : this.sent ? texts.view.sent : ""}</span>
    </form>`;
  }

  // a tool in the server asks

  drawInput() {
    const fields = inputFields(this.args);
    return html`${fields.map((field, at) => this.drawField(field, at))}
      <div class="doing"><button class="strong" @click=${() => this.#submitInput(fields)}>${this.texts.send}</button></div>`;
  }

  #submitInput(fields) {
    const values = fields.map((field) => [field.name, parseValue(field, this.#fieldText(field))]);
    const problems = fields.flatMap((field, at) => {
      const isIncomplete = hasIncompleteInput(this.querySelectorAll(".field")[at]);
      const sentence = isIncomplete ? this.texts.view.incomplete : validateField(field, values[at][1]);
      return sentence ? [[field.name, `${field.label} ${sentence}`]] : [];
    });
    this.showProblems(problems);
    if (problems.length === 0) this.send(() => this.sendValues(Object.fromEntries(values)));
  }

  /** Show the problems of fields, as pairs of a name and a sentence, and focus the first. */
  async showProblems(problems) {
    this.problems = new Map(problems);
    if (this.problems.size === 0) return;
    await this.updateComplete;
    this.querySelector("[aria-invalid]")?.focus();
  }

  #fieldText(field) {
    return this.#typed.has(field.name) ? this.typedText(field.name) : inputText(field, field.value);
  }

  drawField(field, at = 0) {
    return drawField(field, {
      id: `${this.key}-${at}`,
      first: inputText(field, field.value),
      text: this.#fieldText(field),
      problem: this.problems.get(field.name),
      tell: (text) => this.onType(field.name, text),
      texts: this.texts.view,
    });
  }

  // a tool of the page

  answer(value) {
    this.send(() => this.sendAnswer(value));
  }

  #drawSkip() {
    const skip = () => this.send(() => this.sendFault(SKIP_FAULT));
    return html`<button type="button" class="plain" @click=${skip}>${this.texts.skip}</button>`;
  }

  #drawPrompt() {
    const words = promptText(this);
    return words === null ? this.drawArguments(this.args) : html`<p class="words">${words}</p>`;
  }

  drawChoice() {
    return html`${this.#drawPrompt()}
      <div class="doing">
        ${parseChoices(this.args).map(
          ({ value, label }) => html`<button type="button" @click=${() => this.answer(value)}>${label}</button>`,
        )}
        ${this.#drawSkip()}
      </div>
      ${this.#drawOtherAnswer()}`;
  }

  drawConfirm() {
    const { texts } = this;
    return html`${this.#drawPrompt()}
      <div class="doing">
        <button type="button" class="strong" @click=${() => this.answer(true)}>${texts.yes}</button>
        <button type="button" @click=${() => this.answer(false)}>${texts.no}</button>
        ${this.#drawSkip()}
      </div>
      ${this.#drawOtherAnswer()}`;
  }

  drawAnswer() {
    return html`${this.#drawPrompt()} ${this.drawAnswerBox(this.#drawSkip())}`;
  }

  /** Offer an answer beyond the buttons. */
  #drawOtherAnswer() {
    return html`<details ?open=${this.#typed.size > 0}>
      <summary>${this.texts.otherAnswer}</summary>${this.drawAnswerBox(nothing)}</details>`;
  }
}

const RENDERERS = {
  approval: (form) => form.drawApproval(),
  input: (form) => form.drawInput(),
  choice: (form) => form.drawChoice(),
  confirm: (form) => form.drawConfirm(),
  answer: (form) => form.drawAnswer(),
};
