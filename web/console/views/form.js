/**
 * `<tl-view-form>`: a form of a view. Typed text survives a reload until it is sent; a sent form stays readable, and
 * can be sent again only if the node says `repeat`.
 */

import { html, nothing } from "lit";

import { ActionPart } from "./action-part.js";
import { formErrors, incompleteDate } from "./errors.js";
import { drawField, hasIncompleteInput } from "./field.js";
import { inputText, parseValue } from "./values.js";

export class ViewForm extends ActionPart {
  #texts = new Map(); // what was typed

  willUpdate() {
    if (!this.hasUpdated) this.#texts = readDraft(this.draft.read());
  }

  onSubmitted() {
    this.#texts = new Map();
  }

  #onType(name, text) {
    if (!this.#texts.has(name)) this.requestUpdate(); // removes the error of the last answer
    this.#texts.set(name, text);
    this.draft.write([...this.#texts]);
    this.clearError(name);
  }

  /** Return a field's initial text: the sent value, or the view's. */
  #firstText(field) {
    const values = this.isUsed ? this.lastAction?.values : null;
    return inputText(field, values && Object.hasOwn(values, field.name) ? values[field.name] : field.value);
  }

  #currentText(field) {
    return (this.isUsed ? null : this.#texts.get(field.name)) ?? this.#firstText(field);
  }

  #problem({ name, error }) {
    if (this.isUsed) return null;
    if (this.problems) return this.problems.get(name);
    return this.#texts.has(name) ? null : error;
  }

  #submit(event) {
    event.preventDefault();
    const { id, fields } = this.node;
    const values = Object.fromEntries(fields.map((field) => [field.name, parseValue(field, this.#currentText(field))]));
    const half = this.#incompleteFields();
    this.act({ kind: "form.submit", form_id: id, values }, formErrors, half.length > 0 ? half : undefined);
  }

  /** Return the problems of incomplete dates. */
  #incompleteFields() {
    const fields = [...this.querySelectorAll(".field")].filter(hasIncompleteInput);
    return fields.map(({ dataset: { name } }) => incompleteDate(this.texts, name, "values", name));
  }

  render() {
    const { id, title, fields, submit = this.texts.submit, error } = this.node;
    return html`<form class="form" novalidate autocomplete="off" data-form=${id}
      data-state=${this.isUsed ? "sent" : "open"} @submit=${(event) => this.#submit(event)}>
      <fieldset ?disabled=${this.isUsed || this.isBusy}>
        ${title ? html`<legend>${title}</legend>` : nothing}
        ${fields.map((field) => this.#drawField(field))}
        ${this.renderError(error)}
        <div class="doing">
          ${this.renderAction(html`<button class="strong">${submit}</button>`, submit)} ${this.renderStatus()}
        </div>
      </fieldset>
    </form>`;
  }

  #drawField(field) {
    return drawField(field, {
      id: `${this.key}-${field.name}`,
      first: this.#firstText(field),
      text: this.#currentText(field),
      problem: this.#problem(field),
      tell: (text) => this.#onType(field.name, text),
      texts: this.texts,
    });
  }
}

/** Return the texts of a draft; empty if it is not valid. */
function readDraft(entries) {
  const isPair = (entry) => Array.isArray(entry) && entry.every((each) => typeof each === "string");
  return new Map(Array.isArray(entries) ? entries.filter(isPair) : []);
}

customElements.define("tl-view-form", ViewForm);
