/**
 * The rows of a table while a person edits it, and the edits. Pure.
 *
 * Save sends all rows at once: added rows come last, and a deleted row can be restored until then. Edits are stored as
 * JSON and hold only what was typed.
 */

import { inputText, parseValue } from "./values.js";

const MAX_ELEMENTS = 1500; // that a page draws without a noticeable pause
const DATE_ELEMENTS = 15; // inside the browser's date picker

export class TableEdits {
  #cells = new Map(); // row key -> (column -> text)
  #added = [];
  #removed = new Set();

  /** Return the edits that `toJSON` wrote; none if the JSON is not valid. */
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

  /** Add a row and return its key, which begins with +: no row id does. */
  add() {
    const last = Number(this.#added.at(-1)?.slice(1) ?? 0);
    this.#added.push(`+${last + 1}`);
    return this.#added.at(-1);
  }

  /** Remove an added row at once, any other row with the next save. */
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

/** Return the rows of a table as shown or saved last; `known` are its current row ids. */
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

/** Return the initial text of a cell. */
export const firstText = (row, column) => inputText(column, row.values.get(column.name));

/** Return the current text of a cell. */
export const cellText = (row, column, edits) => edits.text(row.key, column.name) ?? firstText(row, column);

/** Return the action of Save, and the keys of its rows. */
export function buildSave(node, rows, edits) {
  const saved = rows.filter(({ key }) => !edits.isRemoved(key));
  const flat = saved.map((row) => {
    const cells = node.columns.map((column) => [column.name, parseValue(column, cellText(row, column, edits))]);
    return Object.fromEntries(row.row_id === null ? cells : [["row_id", row.row_id], ...cells]);
  });
  const deleted = rows.filter(({ key, row_id }) => row_id !== null && edits.isRemoved(key)).map(({ row_id }) => row_id);
  const action = { kind: "table.save", table_id: node.id, rows: flat, ...(deleted.length > 0 && { deleted }) };
  return { action, keys: saved.map(({ key }) => key) };
}

/** Return how many rows to draw per page: selects repeat their options in every row, and date pickers are heavy. */
export function pageSize(columns) {
  const costs = columns.map(
    ({ type, options = [] }) => (type === "field.datetime" ? DATE_ELEMENTS : 3) + options.length,
  );
  return Math.max(10, Math.floor(MAX_ELEMENTS / costs.reduce((sum, cost) => sum + cost)));
}
