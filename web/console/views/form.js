/**
 * `<tl-view-form>`: a form of a view. What is typed stays through a reload until it is sent; what was sent stays
 * readable, and cannot be sent again unless the form says so.
 */

import { html, nothing } from "lit";

import { drawField, isHalf } from "./field.js";
import { Part } from "./action-part.js";
import { halfOf, inForm } from "./errors.js";
import { textOf, valueOf } from "./values.js";

export class ViewForm extends Part {
  #texts = new Map(); // what was typed

  willUpdate() {
    if (!this.hasUpdated) this.#texts = typed(this.draft.read());
  }

  taken() {
    this.#texts = new Map();
  }

  #type(name, text) {
    if (!this.#texts.has(name)) this.requestUpdate(); // what was wrong with the last answer goes
    this.#texts.set(name, text);
    this.draft.write([...this.#texts]);
    this.edited(name);
  }

  /** What a field begins with: what was sent, or what the view says. */
  #first(field) {
    const values = this.isUsed ? this.sent?.values : null;
    return textOf(field, values && Object.hasOwn(values, field.name) ? values[field.name] : field.value);
  }

  #text(field) {
    return (this.isUsed ? null : this.#texts.get(field.name)) ?? this.#first(field);
  }

  #problem({ name, error }) {
    if (this.isUsed) return null;
    if (this.problems) return this.problems.get(name);
    return this.#texts.has(name) ? null : error;
  }

  #submit(event) {
    event.preventDefault();
    const { id, fields } = this.node;
    const values = Object.fromEntries(fields.map((field) => [field.name, valueOf(field, this.#text(field))]));
    const half = this.#half();
    this.act({ kind: "form.submit", form_id: id, values }, inForm, half.length > 0 ? half : undefined);
  }

  /** Dates that are not complete. */
  #half() {
    const fields = [...this.querySelectorAll(".field")].filter(isHalf);
    return fields.map(({ dataset: { name } }) => halfOf(name, "values", name));
  }

  render() {
    const { id, title, fields, submit = "Submit", error } = this.node;
    return html`<form class="form" novalidate autocomplete="off" data-form=${id}
      data-state=${this.isUsed ? "sent" : "open"} @submit=${(event) => this.#submit(event)}>
      <fieldset ?disabled=${this.isUsed || this.isBusy}>
        ${title ? html`<legend>${title}</legend>` : nothing}
        ${fields.map((field) => this.#field(field))}
        ${this.whole(error)}
        <div class="doing">
          ${this.foot(html`<button class="strong">${submit}</button>`, submit)} ${this.status()}
        </div>
      </fieldset>
    </form>`;
  }

  #field(field) {
    return drawField(field, {
      id: `${this.key}-${field.name}`,
      first: this.#first(field),
      text: this.#text(field),
      problem: this.#problem(field),
      tell: (text) => this.#type(field.name, text),
    });
  }
}

/** A draft, if it is one. */
function typed(entries) {
  const isPair = (entry) => Array.isArray(entry) && entry.every((each) => typeof each === "string");
  return new Map(Array.isArray(entries) ? entries.filter(isPair) : []);
}

customElements.define("tl-view-form", ViewForm);
