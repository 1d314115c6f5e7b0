/**
 * Folds events to the open views of a session, and validates actions on them (docs/protocol.md, sections 3.4 and 3.5).
 *
 * The same as the server's, so that a form shows at once what the server would answer. Problems of an action:
 *
 *     conflict   too late, or for another view; sending it again does not help
 *     invalid    a value is wrong; `path` leads to the field or the cell
 */

import { pythonRepr } from "../shared/python-text.js";
import { A2UI_KIND, SurfaceError, applyMessages, checkA2uiAction, surfaceSize } from "./a2ui.js";
import { validateField } from "./fields.js";
import { MAX_PARTS, isEmptyView, validateView, walkView } from "./schema.js";

const MAX_OPEN_PARTS = 10_000; // in all open views
const MAX_PROBLEMS = 100; // per answer
const MAX_KEY_CHARS = 128; // of an unknown name in a path
const SURFACE_SIZE_PER_PART = 100; // counts the data of a surface as parts
export const NODES_KIND = "a2ui.v1";
const ACTIVE_TYPES = new Set(["form", "table_editor", "button"]);

export class OpenViews {
  open = new Map(); // by `viewKey`; the newest last
  #size = 0;

  apply(event) {
    if (event.type === "assistant.view") this.#show(event);
    else if (event.type === "ui.action") this.applyAction(event.payload, event.channel);
  }

  /** Apply an action in a channel. */
  applyAction(action, channel = null) {
    const view = findView(this.open.values(), action, channel);
    if (view) ACTION_EFFECTS[action.action.kind]?.(view, action.action);
  }

  /** Return the problems of an action in a channel. An action that answers a call has none here. */
  validateAction({ view_id, call_id, shown, action }, channel = null) {
    if (view_id == null) return call_id == null ? [invalid("expected a view_id or a call_id", "view_id")] : [];
    const view = findView(this.open.values(), { view_id, shown }, channel);
    if (!view) return [conflict(`view ${view_id} is not open in this session`, "view_id")];
    if (shown != null && shown !== view.event_id) return [conflict(`view ${view_id} has been shown anew`, "shown")];
    const problems = ACTION_CHECKS[action.kind](view, action).slice(0, MAX_PROBLEMS);
    const conflicts = problems.filter(({ kind }) => kind === "conflict");
    return conflicts.length > 0 ? conflicts : problems;
  }

  #show({ id, channel = null, payload: { view } }) {
    const key = viewKey(channel, view.view_id);
    if (view.kind === A2UI_KIND) this.#showSurface(key, id, channel, view);
    else if (view.kind === NODES_KIND) this.#showNodes(key, id, channel, view);
    else this.#close(key); // a view of another kind takes no actions
  }

  #showSurface(key, id, channel, { view_id, tree }) {
    const before = this.open.get(key);
    const surface = applyIfFitting(before?.surface ?? null, view_id, tree);
    if (surface === undefined) return; // stored in the log, but never drawn
    this.#close(key);
    if (surface === null) return;
    const size = surface.components.size + Math.floor(surfaceSize(surface) / SURFACE_SIZE_PER_PART);
    const isUpdate = tree.messages[0].createSurface === undefined;
    const opened = { event_id: id, channel, view_id, tree, active: new Map(), rows: new Map(), used: new Set() };
    this.#add(key, { ...(isUpdate ? before : opened), surface, size });
  }

  #showNodes(key, id, channel, view) {
    if (validateView(view.tree) !== null) return; // stored in the log, but never drawn
    this.#close(key);
    if (isEmptyView(view.tree)) return;
    const found = [...walkView(view.tree)].map(({ part }) => part);
    const active = new Map(found.filter(({ type }) => ACTIVE_TYPES.has(type)).map((part) => [part.id, part]));
    const tables = [...active.values()].filter(({ type }) => type === "table_editor");
    const rows = new Map(tables.map((table) => [table.id, new Set((table.rows ?? []).map((row) => row.row_id))]));
    const { view_id, tree } = view;
    const used = new Set();
    this.#add(key, { event_id: id, channel, view_id, tree, surface: null, size: found.length, active, rows, used });
  }

  #add(key, view) {
    this.open.set(key, view);
    this.#size += view.size;
    while (this.#size > MAX_OPEN_PARTS) this.#close(this.open.keys().next().value);
  }

  #close(key) {
    this.#size -= this.open.get(key)?.size ?? 0;
    this.open.delete(key);
  }
}

/** Return the surface after the messages of a view, null if it is closed; undefined if they do not fit. */
function applyIfFitting(surface, viewId, tree) {
  try {
    return applyMessages(surface, viewId, tree);
  } catch (error) {
    if (!(error instanceof SurfaceError)) throw error;
    return undefined;
  }
}

/** A channel has no space in its name, so the key is unique. */
export const viewKey = (channel, viewId) => `${channel ?? ""} ${viewId}`;

/**
 * Return the view of an action in a channel, or undefined. Several channels may show one `view_id`. First comes the
 * view that `shown` names, then the one in the action's channel, then the one in no channel, then the newest.
 */
export function findView(views, { view_id, shown }, channel = null) {
  const candidates = [...views].filter((view) => view.view_id === view_id);
  return (
    candidates.find(({ event_id }) => event_id === shown) ??
    candidates.find((view) => view.channel === channel) ??
    candidates.find((view) => view.channel === null) ??
    candidates.at(-1)
  );
}

/** Return the server's `fault` for problems, of which there is at least one. */
export function buildFault(problems) {
  const [first] = problems;
  const code = first.kind === "conflict" ? "CONFLICT" : "VALIDATION_ERROR";
  const listed = problems.map(({ path, message }) => ({ path, message }));
  return { code, message: first.message, details: { path: first.path, problems: listed } };
}

const invalid = (message, ...path) => ({ kind: "invalid", message, path });
const conflict = (message, ...path) => ({ kind: "conflict", message, path });

/** Return a form, table or button of a view, or null. */
const findPart = (view, type, id) => (view.active.get(id)?.type === type ? view.active.get(id) : null);

function checkSubmit(view, { form_id, values }) {
  const form = findPart(view, "form", form_id);
  if (!form) return [invalid(`the view has no form ${form_id}`, "form_id")];
  if (view.used.has(form_id)) return [conflict(`form ${form_id} has been submitted already`, "form_id")];
  return checkValues(form.fields, values, "values");
}

function checkClick(view, { button_id }) {
  if (!findPart(view, "button", button_id)) return [invalid(`the view has no button ${button_id}`, "button_id")];
  return view.used.has(button_id) ? [conflict(`button ${button_id} has been clicked already`, "button_id")] : [];
}

function checkAddRow(view, { table_id }) {
  const table = findPart(view, "table_editor", table_id);
  if (!table) return [invalid(`the view has no table ${table_id}`, "table_id")];
  return table.can_add ? [] : [invalid(`rows cannot be added to ${table_id}`, "table_id")];
}

function checkDeleteRow(view, { table_id, row_id }) {
  const table = findPart(view, "table_editor", table_id);
  if (!table) return [invalid(`the view has no table ${table_id}`, "table_id")];
  if (!table.can_delete) return [invalid(`rows of ${table_id} cannot be deleted`, "table_id")];
  return view.rows.get(table_id).has(row_id) ? [] : [unknownRow(table, row_id, "row_id")];
}

function checkSave(view, action) {
  const { table_id, rows, deleted = [] } = action;
  const table = findPart(view, "table_editor", table_id);
  if (!table) return [invalid(`the view has no table ${table_id}`, "table_id")];
  if (rows.length + deleted.length > MAX_PARTS) return [invalid(`expected at most ${MAX_PARTS} rows`, "rows")];
  if (view.used.has(table_id)) {
    return [conflict(`table ${table_id} has been saved already; wait until it is shown again`, "table_id")];
  }
  return checkRows(table, view.rows.get(table_id), rows, deleted);
}

function checkRows(table, known, rows, deleted) {
  const left = new Set(known);
  const problems = rows.flatMap((row, at) => {
    const { row_id, ...cells } = row;
    const place = rowProblem(table, known, left, row_id, at);
    if (typeof row_id === "string") left.delete(row_id);
    return [...(place ? [place] : []), ...checkValues(table.columns, cells, "rows", at)];
  });
  for (const [at, row_id] of deleted.entries()) {
    const problem = deletedRowProblem(table, known, left, row_id, at);
    if (problem) problems.push(problem);
    left.delete(row_id);
  }
  return problems;
}

function deletedRowProblem(table, known, left, row_id, at) {
  if (!table.can_delete) return invalid(`rows of ${table.id} cannot be deleted`, "deleted", at);
  if (!known.has(row_id)) return unknownRow(table, row_id, "deleted", at);
  return left.has(row_id) ? null : invalid(`row ${row_id} stands twice`, "deleted", at);
}

function rowProblem(table, known, left, row_id, at) {
  if (row_id == null) return table.can_add ? null : invalid(`rows cannot be added to ${table.id}`, "rows", at);
  if (typeof row_id !== "string") return invalid("row_id must be a text", "rows", at, "row_id");
  if (!known.has(row_id)) return unknownRow(table, row_id, "rows", at, "row_id");
  return left.has(row_id) ? null : invalid(`row ${row_id} stands twice`, "rows", at, "row_id");
}

/** A row that never existed is invalid; a deleted one is a conflict. */
function unknownRow(table, row_id, ...path) {
  const was = (table.rows ?? []).some((row) => row.row_id === row_id);
  return was
    ? conflict(`row ${row_id} of ${table.id} has been deleted already`, ...path)
    : invalid(`table ${table.id} has no row ${pythonRepr(row_id)}`, ...path);
}

/** Return the problems of field values, or of the cells of a row. */
function checkValues(fields, values, ...path) {
  const problems = [];
  for (const field of fields) {
    const sentence = validateField(field, Object.hasOwn(values, field.name) ? values[field.name] : null);
    if (sentence) problems.push(invalid(`${field.name} ${sentence}`, ...path, field.name));
  }
  const known = new Set(fields.map((field) => field.name));
  for (const name of Object.keys(values).filter((key) => !known.has(key))) {
    const short = Array.from(name).slice(0, MAX_KEY_CHARS).join("");
    problems.push(invalid(`${pythonRepr(name)} is not a field`, ...path, short));
  }
  return problems;
}

const ACTION_CHECKS = {
  "form.submit": checkSubmit,
  "button.click": checkClick,
  "table.add_row": checkAddRow,
  "table.delete_row": checkDeleteRow,
  "table.save": checkSave,
  "a2ui.action": ({ surface }, action) =>
    checkA2uiAction(surface, action).map(({ message, path }) => invalid(message, ...path)),
  "input.submit": () => [invalid("input.submit answers a call, not a view", "kind")],
};

/** Mark a form or button as used, unless it may repeat. */
const markUsed = (view, id) => {
  const part = view.active.get(id);
  if (part && part.type !== "table_editor" && !part.repeat) view.used.add(id);
};

const ACTION_EFFECTS = {
  "form.submit": (view, { form_id }) => markUsed(view, form_id),
  "button.click": (view, { button_id }) => markUsed(view, button_id),
  "a2ui.action": (view, { component_id }) => view.surface && view.used.add(component_id),
  "table.delete_row": (view, { table_id, row_id }) => view.rows.get(table_id)?.delete(row_id),
  "table.save": (view, action) => {
    const known = view.rows.get(action.table_id);
    if (!known) return;
    for (const row_id of action.deleted ?? []) known.delete(row_id);
    view.used.add(action.table_id);
  },
};
