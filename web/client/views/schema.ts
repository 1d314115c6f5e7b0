/**
 * The schema of an `assistant.view` (docs/protocol.md, section 3.3).
 *
 * `validateView` returns the first error of a tree and its path; the paths are the server's, the messages are not.
 * `walkView` visits the parts of a valid tree.
 */

import { isObject } from "../blocks/json.js";
import type { Json } from "../events.js";
import { codePointLength, pythonRepr } from "../shared/python-text.js";
import type { FormNode, NumberField, SelectField, TableEditorNode, ViewField } from "./view-nodes.js";

/** A part of a view: a node, a field, a row, an option. */
type ViewPart = { [key: string]: Json };

/** Checks a value at a path, and throws a `ViewError`. */
type Check = ((value: unknown, path: string) => void) & { isOptional?: boolean };

/** The limit of parts (nodes, columns, rows, options) of a view. */
export const MAX_PARTS: number = 2000; // a page draws so many without a pause
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
  readonly path: string;

  constructor(message: string, path: string) {
    super(message);
    this.path = path;
  }
}

function throwAt(path: string, expected: string): never {
  throw new ViewError(`expected ${expected}`, path);
}

// Checks of a value at a path; `optional` ones may be null or missing.

const checkValue =
  (holds: (value: unknown) => boolean, expected: string): Check =>
  (value, path) => {
    if (!holds(value)) throwAt(path, expected);
  };
const checkText = (least: number, most: number): Check =>
  checkValue(
    (value) => typeof value === "string" && value.length >= least && codePointLength(value) <= most,
    `a text of ${least} to ${most} characters`,
  );
const checkPattern = (form: RegExp, expected: string): Check =>
  checkValue((value) => typeof value === "string" && form.test(value), expected);
const oneOf = (...names: unknown[]): Check =>
  checkValue((value) => names.includes(value), `one of ${names.join(", ")}`);
const optional = (check: Check): Check =>
  Object.assign(
    (value: unknown, path: string) => {
      if (value !== null) check(value, path);
    },
    { isOptional: true },
  );
const omittable = (check: Check): Check =>
  Object.assign((value: unknown, path: string) => check(value, path), { isOptional: true });

const label = checkText(1, MAX_LABEL_CHARS);
const longText = checkText(0, MAX_TEXT_CHARS);
const name = checkPattern(NAME, "a name: a letter, then letters, digits and _, 64 at most");
const id = checkPattern(ID, "an id: letters, digits and _ . : -, 128 at most");
const day = optional(checkPattern(DAY, "a day like 2026-01-08"));
const flag = omittable(checkValue((value) => typeof value === "boolean", "true or false"));
const number = optional(checkValue(Number.isFinite, "a number that a double can hold"));
const length = omittable(
  checkValue(
    (value) => typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= MAX_TEXT_CHARS,
    `a length of 1 to ${MAX_TEXT_CHARS}`,
  ),
);

const checkList =
  (check: Check, least = 0, most = Infinity): Check =>
  (value, path) => {
    if (!Array.isArray(value) || value.length < least || value.length > most) throwAt(path, "a list that fits");
    value.forEach((item, at) => check(item, `${path}[${at}]`));
  };
const checkMap =
  (check: Check): Check =>
  (value, path) => {
    if (!isObject(value)) throwAt(path, "an object");
    for (const item of Object.values(value)) check(item, `${path}[...]`);
  };
const cell = checkValue((value) => value === null || typeof value === "string" || Number.isFinite(value), "a value");

/** Check an object with these fields and no others; `whole` checks all of it when every field fits. */
const checkFields =
  <Part>(fields: { [name: string]: Check }, whole: (part: Part, path: string) => void = () => {}): Check =>
  (value, path) => {
    const part = value as ViewPart;
    for (const [key, item] of Object.entries(part)) {
      const check = Object.hasOwn(fields, key) ? fields[key] : undefined;
      if (check === undefined) throwAt(path, `no field ${pythonRepr(key)}`);
      check(item, `${path}.${key}`);
    }
    for (const [key, check] of Object.entries(fields)) {
      if (!check.isOptional && !Object.hasOwn(part, key)) throwAt(path, `a field ${key}`);
    }
    whole(value as Part, path);
  };

/** Check an object by its `type`. */
const checkTyped =
  (table: () => { [type: string]: Check }): Check =>
  (value, path) => {
    if (!isObject(value)) throwAt(path, "an object");
    if (!Object.hasOwn(value, "type")) throwAt(path, "a field type");
    const check = typeof value.type === "string" && Object.hasOwn(table(), value.type) && table()[value.type];
    if (!check) throwAt(`${path}.type`, `one of ${Object.keys(table()).join(", ")}`);
    check(value, path);
  };
const checkObject =
  (check: Check): Check =>
  (value, path) =>
    isObject(value) ? check(value, path) : throwAt(path, "an object");

function requireUnique(what: string, names: readonly string[], path: string): void {
  const twice = names.find((item, at) => names.indexOf(item) !== at);
  if (twice !== undefined) throwAt(path, `each ${what} once, got ${pythonRepr(twice)} twice`);
}

const type = () => {};
const INPUT = { type, name, label, required: flag, help: optional(label), error: optional(longText) };
const option = checkObject(checkFields({ value: label, label: optional(label) }));

const FIELDS: { [Type in ViewField["type"]]: Check } = {
  "field.text": checkFields({
    ...INPUT,
    value: optional(longText),
    max_length: length,
    multiline: flag,
    placeholder: optional(label),
  }),
  "field.number": checkFields(
    { ...INPUT, value: number, min: number, max: number, above: number, step: number },
    ({ step }: NumberField, path) => {
      if (step != null && !(step > 0)) throwAt(path, "a step above 0");
    },
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
    ({ options }: SelectField, path) =>
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

function checkTable({ columns, rows = [] }: TableEditorNode, path: string): void {
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
      const wanted = byName.get(key)?.type === "field.number" ? "number" : "string";
      if (value !== null && typeof value !== wanted) throwAt(path, `a ${wanted} as ${key} of row ${row_id}`);
    }
  }
}

const NODES: { [type: string]: Check } = {
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
    ({ fields }: FormNode, path) =>
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
export function* walkView(
  part: { [key: string]: Json },
  path = "$",
  level = 1,
): Generator<{ part: { [key: string]: Json }; path: string; level: number }> {
  yield { part, path, level };
  for (const place of CHILD_FIELDS) {
    for (const [at, inner] of ((part[place] ?? []) as ViewPart[]).entries()) {
      yield* walkView(inner, `${path}.${place}[${at}]`, level + 1);
    }
  }
}

/** Check depth, number of parts and unique ids. */
function checkWhole(tree: ViewPart): void {
  const ids = new Set<Json | undefined>();
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
export const isEmptyView = (tree: Json): boolean => isObject(tree) && Object.keys(tree).length === 0;

/** Return the first error of a tree and its JSON path; null if the tree is valid. */
export function validateView(tree: Json): { message: string; path: string } | null {
  if (isEmptyView(tree)) return null;
  try {
    root(tree, "$");
    checkWhole(tree as ViewPart);
    return null;
  } catch (error) {
    if (error instanceof RangeError) return { message: `expected at most ${MAX_DEPTH} levels`, path: "$" };
    if (!(error instanceof ViewError)) throw error;
    return { message: error.message, path: error.path };
  }
}
