/**
 * The schema of an `assistant.view` (docs/protocol.md, section 3.3).
 *
 * `validateView` returns the first error of a tree and its path; the paths are the server's, the messages are not.
 * `walkView` visits the parts of a valid tree.
 */

import { isObject } from "../blocks/json.js";
import { codePointLength, pythonRepr } from "../shared/python-text.js";

export const MAX_PARTS = 2000; // a page draws so many without a pause
const MAX_DEPTH = 20; // real views have 4
const MAX_COLUMNS = 64;
const MAX_BUTTON_EVENTS = 16;
const MAX_LABEL_CHARS = 200;
const MAX_TEXT_CHARS = 10_000;

const NAME = /^(?!constructor$|prototype$)[A-Za-z][A-Za-z0-9_]{0,63}$/;
const ID = /^(?!constructor$|prototype$)[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$/;
const DAY = /^\d{4}-\d\d-\d\d$/;
const CHILD_FIELDS = ["children", "fields", "columns", "rows", "options", "emits"];

class ViewError extends Error {
  constructor(message, path) {
    super(message);
    this.path = path;
  }
}

const throwAt = (path, expected) => {
  throw new ViewError(`expected ${expected}`, path);
};

// Checks of a value at a path; `optional` ones may be null or missing.

const checkValue = (holds, expected) => (value, path) => {
  if (!holds(value)) throwAt(path, expected);
};
const checkText = (least, most) =>
  checkValue(
    (value) => typeof value === "string" && value.length >= least && codePointLength(value) <= most,
    `a text of ${least} to ${most} characters`,
  );
const checkPattern = (form, expected) => checkValue((value) => typeof value === "string" && form.test(value), expected);
const oneOf = (...names) => checkValue((value) => names.includes(value), `one of ${names.join(", ")}`);
const optional = (check) =>
  Object.assign(
    (value, path) => {
      if (value !== null) check(value, path);
    },
    { optional: true },
  );
const omittable = (check) => Object.assign((value, path) => check(value, path), { optional: true });

const label = checkText(1, MAX_LABEL_CHARS);
const longText = checkText(0, MAX_TEXT_CHARS);
const name = checkPattern(NAME, "a name: a letter, then letters, digits and _, 64 at most");
const id = checkPattern(ID, "an id: letters, digits and _ . : -, 128 at most");
const day = optional(checkPattern(DAY, "a day like 2026-01-08"));
const flag = omittable(checkValue((value) => typeof value === "boolean", "true or false"));
const number = optional(checkValue(Number.isFinite, "a number that a double can hold"));
const length = omittable(
  checkValue(
    (value) => Number.isInteger(value) && value >= 1 && value <= MAX_TEXT_CHARS,
    `a length of 1 to ${MAX_TEXT_CHARS}`,
  ),
);

const checkList =
  (check, least = 0, most = Infinity) =>
  (value, path) => {
    if (!Array.isArray(value) || value.length < least || value.length > most) throwAt(path, "a list that fits");
    value.forEach((item, at) => check(item, `${path}[${at}]`));
  };
const checkMap = (check) => (value, path) => {
  if (!isObject(value)) throwAt(path, "an object");
  for (const item of Object.values(value)) check(item, `${path}[...]`);
};
const cell = checkValue((value) => value === null || typeof value === "string" || Number.isFinite(value), "a value");

/** Check an object with these fields and no others; `whole` checks all of it. */
const checkFields =
  (fields, whole = () => {}) =>
  (value, path) => {
    for (const [key, item] of Object.entries(value)) {
      if (!Object.hasOwn(fields, key)) throwAt(path, `no field ${pythonRepr(key)}`);
      fields[key](item, `${path}.${key}`);
    }
    for (const [key, check] of Object.entries(fields)) {
      if (!check.optional && !Object.hasOwn(value, key)) throwAt(path, `a field ${key}`);
    }
    whole(value, path);
  };

/** Check an object by its `type`. */
const checkTyped = (table) => (value, path) => {
  if (!isObject(value)) throwAt(path, "an object");
  if (!Object.hasOwn(value, "type")) throwAt(path, "a field type");
  const check = typeof value.type === "string" && Object.hasOwn(table(), value.type) && table()[value.type];
  if (!check) throwAt(`${path}.type`, `one of ${Object.keys(table()).join(", ")}`);
  check(value, path);
};
const checkObject = (check) => (value, path) => (isObject(value) ? check(value, path) : throwAt(path, "an object"));

function requireUnique(what, names, path) {
  const twice = names.find((item, at) => names.indexOf(item) !== at);
  if (twice !== undefined) throwAt(path, `each ${what} once, got ${pythonRepr(twice)} twice`);
}

const type = () => {};
const INPUT = { type, name, label, required: flag, help: optional(label), error: optional(longText) };
const option = checkObject(checkFields({ value: label, label: optional(label) }));

const FIELDS = {
  "field.text": checkFields({
    ...INPUT,
    value: optional(longText),
    max_length: length,
    multiline: flag,
    placeholder: optional(label),
  }),
  "field.number": checkFields(
    { ...INPUT, value: number, min: number, max: number, above: number, step: number },
    ({ step }, path) => step != null && !(step > 0) && throwAt(path, "a step above 0"),
  ),
  "field.datetime": checkFields({
    ...INPUT,
    value: optional(label),
    picks: omittable(oneOf("date", "datetime")),
    min: day,
    max: day,
  }),
  "field.select": checkFields(
    { ...INPUT, options: checkList(option, 1), value: optional(label) },
    ({ options }, path) =>
      requireUnique(
        "option",
        options.map(({ value }) => value),
        path,
      ),
  ),
};
const field = checkTyped(() => FIELDS);
const row = checkObject(
  checkFields({
    row_id: id,
    values: checkMap(cell),
    errors: omittable(checkMap(longText)),
    error: optional(longText),
  }),
);
const buttonEvent = checkObject(checkFields({ type: name, data: omittable(checkValue(isObject, "an object")) }));
const nodes = checkList(checkTyped(() => NODES));
const INNER = { type, children: nodes, title: optional(label) };

function checkTable({ columns, rows = [] }, path) {
  const byName = new Map(columns.map((column) => [column.name, column]));
  requireUnique(
    "column",
    columns.map((column) => column.name),
    path,
  );
  if (byName.has("row_id")) throwAt(path, "no column row_id: a saved row says its id there");
  requireUnique(
    "row",
    rows.map(({ row_id }) => row_id),
    path,
  );
  for (const { values, errors = {}, row_id } of rows) {
    const strange = [...Object.keys(values), ...Object.keys(errors)].find((key) => !byName.has(key));
    if (strange !== undefined) throwAt(path, `cells of columns, got ${pythonRepr(strange)} in row ${row_id}`);
    for (const [key, value] of Object.entries(values)) {
      const wanted = byName.get(key).type === "field.number" ? "number" : "string";
      if (value !== null && typeof value !== wanted) throwAt(path, `a ${wanted} as ${key} of row ${row_id}`);
    }
  }
}

const NODES = {
  section: checkFields(INNER),
  text: checkFields({ type, text: longText, style: omittable(oneOf("body", "heading", "subheading", "caption")) }),
  form: checkFields(
    {
      type,
      id,
      fields: checkList(field),
      title: optional(label),
      submit: omittable(label),
      confirm: optional(label),
      repeat: flag,
      error: optional(longText),
    },
    ({ fields }, path) =>
      requireUnique(
        "field",
        fields.map((each) => each.name),
        path,
      ),
  ),
  table_editor: checkFields(
    {
      type,
      id,
      columns: checkList(field, 1, MAX_COLUMNS),
      rows: omittable(checkList(row)),
      title: optional(label),
      can_add: flag,
      can_delete: flag,
      save: omittable(label),
      confirm: optional(label),
      error: optional(longText),
    },
    checkTable,
  ),
  button: checkFields({
    type,
    id,
    label,
    style: omittable(oneOf("primary", "secondary", "danger")),
    confirm: optional(label),
    repeat: flag,
    emits: omittable(checkList(buttonEvent, 0, MAX_BUTTON_EVENTS)),
  }),
};
const root = checkTyped(() => ({ screen: checkFields(INNER), ...NODES }));

/** Yield a part and all parts in it, each with its path and its level. */
export function* walkView(part, path = "$", level = 1) {
  yield { part, path, level };
  for (const place of CHILD_FIELDS) {
    for (const [at, inner] of (part[place] ?? []).entries()) {
      yield* walkView(inner, `${path}.${place}[${at}]`, level + 1);
    }
  }
}

/** Check depth, number of parts and unique ids. */
function checkWhole(tree) {
  const ids = new Set();
  let count = 0;
  for (const { part, path, level } of walkView(tree)) {
    count += 1;
    if (level > MAX_DEPTH) throwAt(path, `at most ${MAX_DEPTH} levels`);
    if (count > MAX_PARTS) throwAt(path, `at most ${MAX_PARTS} parts`);
    if (ids.has(part.id)) throwAt(path, `each id once, got ${part.id} twice`);
    if (part.id !== undefined) ids.add(part.id);
  }
}

/** Whether a tree closes its view. */
export const isEmptyView = (tree) => isObject(tree) && Object.keys(tree).length === 0;

/** Return the first error of a tree and its JSON path; null if the tree is valid. */
export function validateView(tree) {
  if (isEmptyView(tree)) return null;
  try {
    root(tree, "$");
    checkWhole(tree);
    return null;
  } catch (error) {
    if (error instanceof RangeError) return { message: `expected at most ${MAX_DEPTH} levels`, path: "$" };
    if (!(error instanceof ViewError)) throw error;
    return { message: error.message, path: error.path };
  }
}
