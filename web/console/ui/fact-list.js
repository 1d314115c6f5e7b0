/**
 * Draws a JSON value for people: an object as names and values, a list of objects as a table, anything else as words.
 * A value that is too long or too deep is drawn as a tree of JSON. Everything is text.
 */

import { html, nothing } from "lit";

import { humanizeName, isContainer, VALUE_TEXTS, valueText } from "../store/labels.js";
import { drawJson } from "./lazy-json.js";

const MAX_ITEMS = 50; // of a list: a person reads no more
const MAX_COLUMNS = 8;

/** Draw pairs of a name and a value. */
export const drawFacts = (pairs, texts = VALUE_TEXTS) =>
  html`<dl class="facts">${pairs.map(
    ([name, value]) => html`
  <dt>${name}</dt><dd>${drawValue(value, texts)}</dd>`,
  )}</dl>`;

/** Return an object's entries with readable names. */
export const labelledPairs = (value) => Object.entries(value ?? {}).map(([name, inner]) => [humanizeName(name), inner]);

function drawValue(value, texts, depth = 0) {
  if (!isContainer(value)) return html`${typeof value === "string" && value ? value : valueText(value, texts)}`;
  if (Object.keys(value).length === 0) return html`${texts.none}`;
  if (depth > 1) return drawJson(value);
  if (!Array.isArray(value))
    return html`<dl class="facts">${Object.entries(value).map(
      ([name, inner]) => html`
    <dt>${humanizeName(name)}</dt><dd>${drawValue(inner, texts, depth + 1)}</dd>`,
    )}</dl>`;
  return value.every((item) => isContainer(item) && !Array.isArray(item))
    ? drawRows(value, texts)
    : drawList(value, texts, depth);
}

const drawRest = (count, texts) => (count > 0 ? html`<p class="note">${texts.more(count)}</p>` : nothing);

const drawList = (items, texts, depth) =>
  html`<ul class="items">${items.slice(0, MAX_ITEMS).map(
    (item) => html`
  <li>${drawValue(item, texts, depth + 1)}</li>`,
  )}</ul>${drawRest(items.length - MAX_ITEMS, texts)}`;

function drawRows(rows, texts) {
  const names = [...new Set(rows.slice(0, MAX_ITEMS).flatMap(Object.keys))];
  if (names.length > MAX_COLUMNS) return drawJson(rows);
  return html`<div class="scroll" tabindex="0"><table class="rows">
    <thead><tr>${names.map((name) => html`<th scope="col">${humanizeName(name)}</th>`)}</tr></thead>
    <tbody>${rows.slice(0, MAX_ITEMS).map(
      (row) => html`
      <tr>${names.map((name) => html`<td>${Object.hasOwn(row, name) ? valueText(row[name], texts) : ""}</td>`)}</tr>`,
    )}</tbody>
  </table></div>${drawRest(rows.length - MAX_ITEMS, texts)}`;
}
