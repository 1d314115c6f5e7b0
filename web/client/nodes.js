/**
 * The nodes of an `assistant.view` (docs/protocol.md, section 3.3): what a page may show, and nothing else.
 *
 * `flaw` says what is wrong with a tree and where; the paths are those of `turnlog.events.view_nodes`, the words are
 * not. `parts` walks a tree that has no flaw.
 */

import { isObject } from "./reading.js";
import { lengthOf, quote } from "./text.js";

export const PARTS = 2000; // what a page can show without a pause
const LEVELS = 20; // real views have 4
const COLUMNS = 64;
const BUTTON_EVENTS = 16;
const LABEL_CHARS = 200;
const TEXT_CHARS = 10_000;

const NAME = /^(?!constructor$|prototype$)[A-Za-z][A-Za-z0-9_]{0,63}$/;
const ID = /^(?!constructor$|prototype$)[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$/;
const DAY = /^\d{4}-\d\d-\d\d$/;
const INSIDE = ["children", "fields", "columns", "rows", "options", "emits"]; // where a part holds others

/** What is wrong, and where. */
class Flaw extends Error {
  constructor(says, path) {
    super(says);
    this.path = path;
  }
}

const refuse = (path, says) => {
  throw new Flaw(`expected ${says}`, path);
};

// Checks of a value at a path; `optional` ones may be null or missing.

const takes = (holds, says) => (value, path) => {
  if (!holds(value)) refuse(path, says);
};
const textOf = (least, most) =>
  takes(
    (value) => typeof value === "string" && value.length >= least && lengthOf(value) <= most,
    `a text of ${least} to ${most} characters`,
  );
const formed = (form, says) => takes((value) => typeof value === "string" && form.test(value), says);
const oneOf = (...names) => takes((value) => names.includes(value), `one of ${names.join(", ")}`);
const optional = (check) =>
  Object.assign(
    (value, path) => {
      if (value !== null) check(value, path);
    },
    { optional: true },
  );
const may = (check) => Object.assign((value, path) => check(value, path), { optional: true });

const label = textOf(1, LABEL_CHARS);
const words = textOf(0, TEXT_CHARS);
const name = formed(NAME, "a name: a letter, then letters, digits and _, 64 at most");
const id = formed(ID, "an id: letters, digits and _ . : -, 128 at most");
const day = optional(formed(DAY, "a day like 2026-01-08"));
const yes = may(takes((value) => typeof value === "boolean", "true or false"));
const number = optional(takes(Number.isFinite, "a number that a double can hold"));
const length = may(
  takes((value) => Number.isInteger(value) && value >= 1 && value <= TEXT_CHARS, `a length of 1 to ${TEXT_CHARS}`),
);

const listOf =
  (check, least = 0, most = Infinity) =>
  (value, path) => {
    if (!Array.isArray(value) || value.length < least || value.length > most) refuse(path, "a list that fits");
    value.forEach((item, at) => check(item, `${path}[${at}]`));
  };
const mapOf = (check) => (value, path) => {
  if (!isObject(value)) refuse(path, "an object");
  for (const item of Object.values(value)) check(item, `${path}[...]`);
};
const cell = takes((value) => value === null || typeof value === "string" || Number.isFinite(value), "a value");

/** An object with these fields and no others; `whole` looks at all of it. */
const objectOf =
  (fields, whole = () => {}) =>
  (value, path) => {
    for (const [key, item] of Object.entries(value)) {
      if (!Object.hasOwn(fields, key)) refuse(path, `no field ${quote(key)}`);
      fields[key](item, `${path}.${key}`);
    }
    for (const [key, check] of Object.entries(fields)) {
      if (!check.optional && !Object.hasOwn(value, key)) refuse(path, `a field ${key}`);
    }
    whole(value, path);
  };

/** An object whose `type` is one of a table. */
const typedOf = (table) => (value, path) => {
  if (!isObject(value)) refuse(path, "an object");
  if (!Object.hasOwn(value, "type")) refuse(path, "a field type");
  const check = typeof value.type === "string" && Object.hasOwn(table(), value.type) && table()[value.type];
  if (!check) refuse(`${path}.type`, `one of ${Object.keys(table()).join(", ")}`);
  check(value, path);
};
const plainOf = (check) => (value, path) => (isObject(value) ? check(value, path) : refuse(path, "an object"));

function once(what, names, path) {
  const twice = names.find((item, at) => names.indexOf(item) !== at);
  if (twice !== undefined) refuse(path, `each ${what} once, got ${quote(twice)} twice`);
}

const type = () => {};
const INPUT = { type, name, label, required: yes, help: optional(label), error: optional(words) };
const option = plainOf(objectOf({ value: label, label: optional(label) }));

const FIELDS = {
  "field.text": objectOf({
    ...INPUT,
    value: optional(words),
    max_length: length,
    multiline: yes,
    placeholder: optional(label),
  }),
  "field.number": objectOf(
    { ...INPUT, value: number, min: number, max: number, above: number, step: number },
    ({ step }, path) => step != null && !(step > 0) && refuse(path, "a step above 0"),
  ),
  "field.datetime": objectOf({
    ...INPUT,
    value: optional(label),
    picks: may(oneOf("date", "datetime")),
    min: day,
    max: day,
  }),
  "field.select": objectOf({ ...INPUT, options: listOf(option, 1), value: optional(label) }, ({ options }, path) =>
    once(
      "option",
      options.map(({ value }) => value),
      path,
    ),
  ),
};
const field = typedOf(() => FIELDS);
const row = plainOf(
  objectOf({
    row_id: id,
    values: mapOf(cell),
    errors: may(mapOf(words)),
    error: optional(words),
  }),
);
const buttonEvent = plainOf(objectOf({ type: name, data: may(takes(isObject, "an object")) }));
const nodes = listOf(typedOf(() => NODES));
const INNER = { type, children: nodes, title: optional(label) };

function wholeTable({ columns, rows = [] }, path) {
  const byName = new Map(columns.map((column) => [column.name, column]));
  once(
    "column",
    columns.map((column) => column.name),
    path,
  );
  if (byName.has("row_id")) refuse(path, "no column row_id: a saved row says its id there");
  once(
    "row",
    rows.map(({ row_id }) => row_id),
    path,
  );
  for (const { values, errors = {}, row_id } of rows) {
    const strange = [...Object.keys(values), ...Object.keys(errors)].find((key) => !byName.has(key));
    if (strange !== undefined) refuse(path, `cells of columns, got ${quote(strange)} in row ${row_id}`);
    for (const [key, value] of Object.entries(values)) {
      const wanted = byName.get(key).type === "field.number" ? "number" : "string";
      if (value !== null && typeof value !== wanted) refuse(path, `a ${wanted} as ${key} of row ${row_id}`);
    }
  }
}

const NODES = {
  section: objectOf(INNER),
  text: objectOf({ type, text: words, style: may(oneOf("body", "heading", "subheading", "caption")) }),
  form: objectOf(
    {
      type,
      id,
      fields: listOf(field),
      title: optional(label),
      submit: may(label),
      confirm: optional(label),
      repeat: yes,
      error: optional(words),
    },
    ({ fields }, path) =>
      once(
        "field",
        fields.map((each) => each.name),
        path,
      ),
  ),
  table_editor: objectOf(
    {
      type,
      id,
      columns: listOf(field, 1, COLUMNS),
      rows: may(listOf(row)),
      title: optional(label),
      can_add: yes,
      can_delete: yes,
      save: may(label),
      confirm: optional(label),
      error: optional(words),
    },
    wholeTable,
  ),
  button: objectOf({
    type,
    id,
    label,
    style: may(oneOf("primary", "secondary", "danger")),
    confirm: optional(label),
    repeat: yes,
    emits: may(listOf(buttonEvent, 0, BUTTON_EVENTS)),
  }),
};
const root = typedOf(() => ({ screen: objectOf(INNER), ...NODES }));

/** A part and all parts in it, each with its path and its level. */
export function* parts(part, path = "$", level = 1) {
  yield { part, path, level };
  for (const place of INSIDE) {
    for (const [at, inner] of (part[place] ?? []).entries()) {
      yield* parts(inner, `${path}.${place}[${at}]`, level + 1);
    }
  }
}

/** What no part can see alone: too deep, too many, an id that stands twice. */
function wholeView(tree) {
  const ids = new Set();
  let count = 0;
  for (const { part, path, level } of parts(tree)) {
    count += 1;
    if (level > LEVELS) refuse(path, `at most ${LEVELS} levels`);
    if (count > PARTS) refuse(path, `at most ${PARTS} parts`);
    if (ids.has(part.id)) refuse(path, `each id once, got ${part.id} twice`);
    if (part.id !== undefined) ids.add(part.id);
  }
}

/** Whether a tree takes a view away. */
export const isEmpty = (tree) => isObject(tree) && Object.keys(tree).length === 0;

/** What is wrong with a tree, and where (a JSON path); null if it can be shown. */
export function flaw(tree) {
  if (isEmpty(tree)) return null;
  try {
    root(tree, "$");
    wholeView(tree);
    return null;
  } catch (error) {
    if (error instanceof RangeError) return { says: `expected at most ${LEVELS} levels`, path: "$" };
    if (!(error instanceof Flaw)) throw error;
    return { says: error.message, path: error.path };
  }
}
