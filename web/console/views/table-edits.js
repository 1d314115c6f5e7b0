/**
 * A table while a person edits it: the rows it has, and `Edits`, which is what the person did to them. Pure.
 *
 * Edits are made on the page and sent whole, with Save: rows that were added come last, rows that were deleted can be
 * taken back until then. Edits can be kept as JSON and hold no more than what was typed.
 */

import { inputText, parseValue } from "./values.js";

const MAX_ELEMENTS = 1500; // that a page can draw without a pause one would notice
const DATE_ELEMENTS = 15; // elements of a date, in the browser

export class TableEdits {
  #cells = new Map(); // row key -> (column -> text)
  #added = [];
  #removed = new Set();

  /** Edits as `toJSON` wrote them; none, if it is something else. */
  static fromJson(json) {
    const edits = new TableEdits();
    try {
      for (const [key, cells] of json.cells) for (const [name, text] of cells) edits.write(key, name, String(text));
      edits.#added = json.added.map(String);
      edits.#removed = new Set(json.removed);
      return edits;
    } catch {
      return new TableEdits();
    }
  }

  toJSON() {
    const cells = [...this.#cells].map(([key, texts]) => [key, [...texts]]);
    return { cells, added: this.#added, removed: [...this.#removed] };
  }

  /** The keys of the rows that were added. */
  get added() {
    return [...this.#added];
  }

  text(key, name) {
    return this.#cells.get(key)?.get(name);
  }

  write(key, name, text) {
    if (!this.#cells.has(key)) this.#cells.set(key, new Map());
    this.#cells.get(key).set(name, text);
  }

  /** One row more; no id begins with +. */
  add() {
    const last = Number(this.#added.at(-1)?.slice(1) ?? 0);
    this.#added.push(`+${last + 1}`);
    return this.#added.at(-1);
  }

  /** A row that was only added is gone at once; another one when the table is saved. */
  remove(key) {
    if (!this.#added.includes(key)) return void this.#removed.add(key);
    this.#added = this.#added.filter((each) => each !== key);
    this.#cells.delete(key);
  }

  restore(key) {
    this.#removed.delete(key);
  }

  isRemoved(key) {
    return this.#removed.has(key);
  }
}

/** The rows of a table as it was shown or saved last; `known` are the ids that it has now. */
export function currentRows(node, known, saved, edits) {
  const rows = saved ? saved.rows.map(savedRow) : (node.rows ?? []).map(shownRow);
  const there = rows.filter(({ row_id }) => row_id == null || known.has(row_id));
  return [...there, ...edits.added.map((key) => newRow(key, node.columns))];
}

const shownRow = ({ row_id, values, errors = {}, error = null }) => ({
  key: row_id,
  row_id,
  values: new Map(Object.entries(values)),
  errors: new Map(Object.entries(errors)),
  error,
});
const savedRow = (row, at) => ({
  key: row.row_id ?? `=${at}`,
  row_id: row.row_id ?? null,
  values: new Map(Object.entries(row)),
  errors: new Map(),
  error: null,
});
const newRow = (key, columns) => ({
  key,
  row_id: null,
  values: new Map(columns.map(({ name, value }) => [name, value])),
  errors: new Map(),
  error: null,
});

/** What stands in a cell before anybody typed. */
export const firstText = (row, column) => inputText(column, row.values.get(column.name));

/** What stands in a cell. */
export const cellText = (row, column, edits) => edits.text(row.key, column.name) ?? firstText(row, column);

/** What Save sends, and the keys of its rows. */
export function buildSave(node, rows, edits) {
  const kept = rows.filter(({ key }) => !edits.isRemoved(key));
  const flat = kept.map((row) => {
    const cells = node.columns.map((column) => [column.name, parseValue(column, cellText(row, column, edits))]);
    return Object.fromEntries(row.row_id === null ? cells : [["row_id", row.row_id], ...cells]);
  });
  const deleted = rows.filter(({ key, row_id }) => row_id !== null && edits.isRemoved(key)).map(({ row_id }) => row_id);
  const action = { kind: "table.save", table_id: node.id, rows: flat, ...(deleted.length > 0 && { deleted }) };
  return { action, keys: kept.map(({ key }) => key) };
}

/** How many rows are drawn at first: a select has all its options in every row, and pickers are heavy. */
export function pageSize(columns) {
  const costs = columns.map(
    ({ type, options = [] }) => (type === "field.datetime" ? DATE_ELEMENTS : 3) + options.length,
  );
  return Math.max(10, Math.floor(MAX_ELEMENTS / costs.reduce((sum, cost) => sum + cost)));
}
