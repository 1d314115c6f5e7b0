/**
 * Draws the inputs of fields in forms, table cells and questions: label, control, help, error.
 *
 * An input is written to only when its text should change, so the caret stays. Inputs have no `name`: a form's own
 * methods can be hidden by inputs of the same name.
 */

import { html, nothing } from "lit";
import { live } from "lit/directives/live.js";

import { withLabel } from "./errors.js";
import { VIEW_TEXTS } from "./texts.js";
import { inputKind, joinMoment, parseMoment } from "./values.js";

/** Draw a field. `first` is its initial text; `tell` is called with each typed text. */
export function drawField(field, { id, first, text, problem, tell, texts = VIEW_TEXTS }) {
  const about = describedBy(id, field.help, problem);
  return html`<div class="field" data-name=${field.name}>
    <label for=${id}>${field.label}${requiredMark(field)}</label>
    ${drawControl(field, { id, first, text, about, wrong: problem != null, tell, texts })}
    ${drawNotes(field, { id, problem, texts })}
  </div>`;
}

/** Draw the mark of a required field; screen readers announce it by themselves. */
export const requiredMark = ({ required }) =>
  required ? html`<span class="star" aria-hidden="true">\u00a0*</span>` : nothing;

/** Return the ids of the help and the error of an input. */
const describedBy = (id, help, problem) =>
  [help && `${id}-help`, problem != null && `${id}-wrong`].filter(Boolean).join(" ") || nothing;

/** Draw the texts that `describedBy` refers to. */
export const drawNotes = (field, { id, problem, help = field.help, texts = VIEW_TEXTS }) => html`
  ${help ? html`<p class="help" id="${id}-help">${help}</p>` : nothing}
  ${problem == null ? nothing : html`<p class="wrong" id="${id}-wrong">${texts.problem(withLabel(problem, field))}</p>`}`;

/** Draw the control alone; without a `<label>` it needs a `name`. */
export function drawControl(field, control) {
  return CONTROLS[inputKind(field, control.first)](field, control);
}

/** Whether an input holds an incomplete value, such as half a date. */
export const hasIncompleteInput = (root) =>
  [...root.querySelectorAll("input")].some((input) => input.validity.badInput);

const ariaInvalid = ({ wrong }) => (wrong ? "true" : nothing);

const drawText = (field, control) => html`<input type="text" id=${control.id} .value=${live(control.text)}
  inputmode=${field.type === "field.number" ? "decimal" : nothing} placeholder=${field.placeholder ?? nothing}
  ?required=${field.required} aria-label=${control.name ?? nothing} aria-invalid=${ariaInvalid(control)}
  aria-describedby=${control.about} @input=${({ target }) => control.tell(target.value)}>`;

const drawArea = (field, control) => html`<textarea id=${control.id} .value=${live(control.text)} rows="3"
  placeholder=${field.placeholder ?? nothing} ?required=${field.required} aria-label=${control.name ?? nothing}
  aria-invalid=${ariaInvalid(control)} aria-describedby=${control.about}
  @input=${({ target }) => control.tell(target.value)}></textarea>`;

const drawDate = (field, control) => html`<input type="date" id=${control.id} .value=${live(control.text)}
  ?data-empty=${control.text === ""} min=${field.min ?? nothing} max=${field.max ?? nothing} ?required=${field.required}
  aria-label=${control.name ?? nothing} aria-invalid=${ariaInvalid(control)} aria-describedby=${control.about}
  @input=${({ target }) => control.tell(target.value)}>`;

/** Draw a date and a time; a time zone offset stays as it came. */
function drawMoment(field, control) {
  const { zone } = parseMoment(control.first);
  const { day, time } = parseMoment(control.text) ?? splitTime(control.text);
  const tell = ({ currentTarget }) => {
    const [one, other] = currentTarget.querySelectorAll("input");
    control.tell(joinMoment({ day: one.value, time: other.value, zone }));
  };
  return html`<span class="moment" @input=${tell}>
    ${drawDate(field, { ...control, text: day, tell: () => {} })}
    <input type="time" ?data-empty=${time === ""} .value=${live(time)} step=${/:(?!00)..$/.test(time.slice(5)) ? 1 : nothing}
      aria-label=${control.texts.time(control.name ?? field.label)} aria-invalid=${ariaInvalid(control)}
      aria-describedby=${control.about}>
    ${zone ? html`<span class="zone">${zone}</span>` : nothing}
  </span>`;
}

/** Return the parts of a time without a day. */
const splitTime = (said) => ({ day: "", time: /^T(\d\d:\d\d(:\d\d)?)/.exec(said)?.[1] ?? "" });

const drawSelect = (field, control) => html`<select id=${control.id} ?required=${field.required}
  aria-label=${control.name ?? nothing} aria-invalid=${ariaInvalid(control)} aria-describedby=${control.about}
  @change=${({ target }) => control.tell(target.value)}>
  <option value="" .selected=${live(control.text === "")}>${field.required ? control.texts.choose : control.texts.none}</option>
  ${field.options.map(
    ({ value, label }) => html`<option value=${value}
    .selected=${live(control.text === value)}>${label ?? value}</option>`,
  )}
</select>`;

const CONTROLS = {
  text: drawText,
  area: drawArea,
  number: drawText,
  date: drawDate,
  moment: drawMoment,
  select: drawSelect,
};
