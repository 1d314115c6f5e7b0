/**
 * A closed view, read-only: its texts, the values of its forms and tables, its buttons. A form shows what was sent
 * last.
 */

import { html, nothing } from "lit";

import { drawFacts } from "../ui/fact-list.js";
import { displayText } from "./values.js";

/** Draw a valid tree. `actions` are those on the view, `texts` the words of views. */
export function drawClosedView(tree, actions, texts) {
  const last = (key, id) => actions.findLast(({ action }) => action[key] === id)?.action ?? null;
  return RENDERERS[tree.type](tree, last, texts);
}

const drawTitle = (title) => (title ? html`<p class="title">${title}</p>` : nothing);

const section = (node, last, texts) => html`<div class="past">
  ${drawTitle(node.title)} ${node.children.map((child) => RENDERERS[child.type](child, last, texts))}</div>`;

function form({ id, title, fields }, last, texts) {
  const values = last("form_id", id)?.values ?? {};
  return html`${drawTitle(title)}${drawFacts(
    fields.map((field) => [
      field.label,
      displayText(field, Object.hasOwn(values, field.name) ? values[field.name] : field.value),
    ]),
    texts.values,
  )}`;
}

function table({ id, title, columns, rows = [] }, last) {
  const saved = last("table_id", id)?.rows ?? rows.map(({ values }) => values);
  return html`${drawTitle(title)}<div class="scroll" tabindex="0"><table class="rows">
    <thead><tr>${columns.map(({ label }) => html`<th scope="col">${label}</th>`)}</tr></thead>
    <tbody>${saved.map(
      (row) => html`
      <tr>${columns.map((column) => html`<td>${displayText(column, row[column.name])}</td>`)}</tr>`,
    )}</tbody>
  </table></div>`;
}

const RENDERERS = {
  screen: section,
  section,
  form,
  table_editor: table,
  text: ({ text }) => html`<p class="words">${text}</p>`,
  button: ({ label }, _, texts) => html`<p class="note">${texts.button(label)}</p>`,
};
