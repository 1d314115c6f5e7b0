/**
 * Folds events to the open views of a session, and validates actions on them (docs/protocol.md, sections 3.4 and 3.5).
 *
 * The same as the server's, so that a form shows at once what the server would answer. Problems of an action:
 *
 *     conflict   too late, or for another view; sending it again does not help
 *     invalid    a value is wrong; `path` leads to the field or the cell
 */

import type { AnyEvent } from "../folds/event-text.js";
import type { ErrorInfo, Json, Payloads, UiAction, View } from "../events.js";
import { pythonRepr } from "../shared/python-text.js";
import { applyMessages, checkA2uiAction, type Surface, SurfaceError, surfaceSize } from "./a2ui.js";
import { validateField } from "./fields.js";
import { MAX_PARTS, isEmptyView, validateView, walkView } from "./schema.js";
import { A2UI_KIND, NODES_KIND, findView, viewKey } from "./view-keys.js";

import type { ButtonNode, FormNode, TableEditorNode, ViewField } from "./view-nodes.js";

export { findView, NODES_KIND, type Surface, viewKey };

export type Action = UiAction["action"];
type ActionOf<Kind extends Action["kind"]> = Extract<Action, { kind: Kind }>;

/** Why an action is refused; `path` leads into the action, or is `view_id`. */
export interface Problem {
  kind: "conflict" | "invalid";
  message: string;
  path: Array<string | number>;
}

/** An open view. */
export interface OpenView {
  /** The id of the `assistant.view`: an action's `shown`. */
  readonly event_id: string;
  readonly channel: string | null;
  readonly view_id: string;
  readonly tree: Json;
  /** The surface of a view of A2UI; null for nodes. */
  readonly surface: Surface | null;
  /** By table: the ids of its rows. */
  readonly rows: ReadonlyMap<string, ReadonlySet<string>>;
  /** The ids of used forms and buttons, and of saved tables. */
  readonly used: ReadonlySet<string>;
}

/** A node that takes actions. */
type ActiveNode = FormNode | TableEditorNode | ButtonNode;

interface TrackedView extends OpenView {
  readonly rows: Map<string, Set<string>>;
  readonly used: Set<string>;
  readonly active: ReadonlyMap<string, ActiveNode>;
  readonly size: number;
}

const MAX_OPEN_PARTS = 10_000; // in all open views
const MAX_PROBLEMS = 100; // per answer
const MAX_KEY_CHARS = 128; // of an unknown name in a path
const SURFACE_SIZE_PER_PART = 100; // counts the data of a surface as parts
const ACTIVE_TYPES = new Set<Json | undefined>(["form", "table_editor", "button"]);

/** Folds events to the open views of a session, the newest last. */
export class OpenViews {
  #open = new Map<string, TrackedView>();
  #size = 0;

  /** By `viewKey`. */
  get open(): ReadonlyMap<string, OpenView> {
    return this.#open;
  }

  apply(event: AnyEvent): void {
    if (event.type === "assistant.view") this.#show(event);
    else if (event.type === "ui.action") this.applyAction(event.payload as UiAction, event.channel);
  }

  /** Apply an action in a channel. */
  applyAction(action: UiAction, channel: string | null = null): void {
    const view = findView(this.#open.values(), action, channel);
    if (view) applyEffect(view, action.action);
  }

  /** Return the problems of an action in a channel. An action that answers a call has none here. */
  validateAction({ view_id, call_id, shown, action }: UiAction, channel: string | null = null): Problem[] {
    if (view_id == null) return call_id == null ? [invalid("expected a view_id or a call_id", "view_id")] : [];
    const view = findView(this.#open.values(), { view_id, ...(shown != null && { shown }) }, channel);
    if (!view) return [conflict(`view ${view_id} is not open in this session`, "view_id")];
    if (shown != null && shown !== view.event_id) return [conflict(`view ${view_id} has been shown anew`, "shown")];
    const problems = checkAction(view, action).slice(0, MAX_PROBLEMS);
    const conflicts = problems.filter(({ kind }) => kind === "conflict");
    return conflicts.length > 0 ? conflicts : problems;
  }

  #show(event: AnyEvent): void {
    const { id, channel = null }: { id: string; channel?: string | null } = event;
    const { view } = event.payload as Payloads["assistant.view"];
    const key = viewKey(channel, view.view_id);
    if (view.kind === A2UI_KIND) this.#showSurface(key, id, channel, view);
    else if (view.kind === NODES_KIND) this.#showNodes(key, id, channel, view);
    else this.#close(key); // a view of another kind takes no actions
  }

  #showSurface(key: string, id: string, channel: string | null, { view_id, tree }: View): void {
    const before = this.#open.get(key);
    const surface = applyIfFitting(before?.surface ?? null, view_id, tree);
    if (surface === undefined) return; // stored in the log, but never drawn
    this.#close(key);
    if (surface === null) return;
    const size = surface.components.size + Math.floor(surfaceSize(surface) / SURFACE_SIZE_PER_PART);
    const [first] = tree.messages as Array<{ [key: string]: Json }>;
    const opened = {
      event_id: id,
      channel,
      view_id,
      tree,
      active: new Map(),
      rows: new Map(),
      used: new Set<string>(),
    };
    this.#add(key, { ...(before && first?.createSurface === undefined ? before : opened), surface, size });
  }

  #showNodes(key: string, id: string, channel: string | null, view: View): void {
    if (validateView(view.tree) !== null) return; // stored in the log, but never drawn
    this.#close(key);
    if (isEmptyView(view.tree)) return;
    const found = [...walkView(view.tree)].map(({ part }) => part);
    const nodes = found.filter(({ type }) => ACTIVE_TYPES.has(type)) as unknown[] as ActiveNode[];
    const active = new Map(nodes.map((node) => [node.id, node]));
    const tables = nodes.filter((node) => node.type === "table_editor");
    const rows = new Map(tables.map((table) => [table.id, new Set((table.rows ?? []).map((row) => row.row_id))]));
    const { view_id, tree } = view;
    const used = new Set<string>();
    this.#add(key, { event_id: id, channel, view_id, tree, surface: null, size: found.length, active, rows, used });
  }

  #add(key: string, view: TrackedView): void {
    this.#open.set(key, view);
    this.#size += view.size;
    for (const oldest of this.#open.keys()) {
      if (this.#size <= MAX_OPEN_PARTS) break;
      this.#close(oldest);
    }
  }

  #close(key: string): void {
    this.#size -= this.#open.get(key)?.size ?? 0;
    this.#open.delete(key);
  }
}

/** Return the surface after the messages of a view, null if it is closed; undefined if they do not fit. */
function applyIfFitting(surface: Surface | null, viewId: string, tree: View["tree"]): Surface | null | undefined {
  try {
    return applyMessages(surface, viewId, tree);
  } catch (error) {
    if (!(error instanceof SurfaceError)) throw error;
    return undefined;
  }
}

/** Return the server's `fault` for problems, of which there is at least one. */
export function buildFault(problems: Problem[]): ErrorInfo {
  const first = problems[0] as Problem;
  const code = first.kind === "conflict" ? "CONFLICT" : "VALIDATION_ERROR";
  const listed = problems.map(({ path, message }) => ({ path, message }));
  return { code, message: first.message, details: { path: first.path, problems: listed } };
}

type Step = string | number;

const invalid = (message: string, ...path: Step[]): Problem => ({ kind: "invalid", message, path });
const conflict = (message: string, ...path: Step[]): Problem => ({ kind: "conflict", message, path });

/** Return a form, table or button of a view, or null. */
function findNode<Type extends ActiveNode["type"]>(view: TrackedView, type: Type, id: string) {
  const node = view.active.get(id);
  return node?.type === type ? (node as Extract<ActiveNode, { type: Type }>) : null;
}

function checkSubmit(view: TrackedView, { form_id, values }: ActionOf<"form.submit">): Problem[] {
  const form = findNode(view, "form", form_id);
  if (!form) return [invalid(`the view has no form ${form_id}`, "form_id")];
  if (view.used.has(form_id)) return [conflict(`form ${form_id} has been submitted already`, "form_id")];
  return checkValues(form.fields, values, "values");
}

function checkClick(view: TrackedView, { button_id }: ActionOf<"button.click">): Problem[] {
  if (!findNode(view, "button", button_id)) return [invalid(`the view has no button ${button_id}`, "button_id")];
  return view.used.has(button_id) ? [conflict(`button ${button_id} has been clicked already`, "button_id")] : [];
}

function checkAddRow(view: TrackedView, { table_id }: ActionOf<"table.add_row">): Problem[] {
  const table = findNode(view, "table_editor", table_id);
  if (!table) return [invalid(`the view has no table ${table_id}`, "table_id")];
  return table.can_add ? [] : [invalid(`rows cannot be added to ${table_id}`, "table_id")];
}

function checkDeleteRow(view: TrackedView, { table_id, row_id }: ActionOf<"table.delete_row">): Problem[] {
  const table = findNode(view, "table_editor", table_id);
  if (!table) return [invalid(`the view has no table ${table_id}`, "table_id")];
  if (!table.can_delete) return [invalid(`rows of ${table_id} cannot be deleted`, "table_id")];
  return view.rows.get(table_id)?.has(row_id) ? [] : [unknownRow(table, row_id, "row_id")];
}

function checkSave(view: TrackedView, { table_id, rows, deleted = [] }: ActionOf<"table.save">): Problem[] {
  const table = findNode(view, "table_editor", table_id);
  if (!table) return [invalid(`the view has no table ${table_id}`, "table_id")];
  if (rows.length + deleted.length > MAX_PARTS) return [invalid(`expected at most ${MAX_PARTS} rows`, "rows")];
  if (view.used.has(table_id)) {
    return [conflict(`table ${table_id} has been saved already; wait until it is shown again`, "table_id")];
  }
  return checkRows(table, view.rows.get(table_id) ?? new Set(), rows, deleted);
}

function checkRows(
  table: TableEditorNode,
  known: ReadonlySet<string>,
  rows: ActionOf<"table.save">["rows"],
  deleted: readonly string[],
): Problem[] {
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

function deletedRowProblem(
  table: TableEditorNode,
  known: ReadonlySet<string>,
  left: ReadonlySet<string>,
  row_id: string,
  at: number,
): Problem | null {
  if (!table.can_delete) return invalid(`rows of ${table.id} cannot be deleted`, "deleted", at);
  if (!known.has(row_id)) return unknownRow(table, row_id, "deleted", at);
  return left.has(row_id) ? null : invalid(`row ${row_id} stands twice`, "deleted", at);
}

function rowProblem(
  table: TableEditorNode,
  known: ReadonlySet<string>,
  left: ReadonlySet<string>,
  row_id: Json | undefined,
  at: number,
): Problem | null {
  if (row_id == null) return table.can_add ? null : invalid(`rows cannot be added to ${table.id}`, "rows", at);
  if (typeof row_id !== "string") return invalid("row_id must be a text", "rows", at, "row_id");
  if (!known.has(row_id)) return unknownRow(table, row_id, "rows", at, "row_id");
  return left.has(row_id) ? null : invalid(`row ${row_id} stands twice`, "rows", at, "row_id");
}

/** A row that never existed is invalid; a deleted one is a conflict. */
function unknownRow(table: TableEditorNode, row_id: string, ...path: Step[]): Problem {
  const was = (table.rows ?? []).some((row) => row.row_id === row_id);
  return was
    ? conflict(`row ${row_id} of ${table.id} has been deleted already`, ...path)
    : invalid(`table ${table.id} has no row ${pythonRepr(row_id)}`, ...path);
}

/** Return the problems of field values, or of the cells of a row. */
function checkValues(fields: readonly ViewField[], values: { [name: string]: Json }, ...path: Step[]): Problem[] {
  const problems: Problem[] = [];
  for (const field of fields) {
    const value = Object.hasOwn(values, field.name) ? values[field.name] : null;
    const sentence = validateField(field, value ?? null);
    if (sentence) problems.push(invalid(`${field.name} ${sentence}`, ...path, field.name));
  }
  const known = new Set(fields.map((field) => field.name));
  for (const name of Object.keys(values).filter((key) => !known.has(key))) {
    const short = Array.from(name).slice(0, MAX_KEY_CHARS).join("");
    problems.push(invalid(`${pythonRepr(name)} is not a field`, ...path, short));
  }
  return problems;
}

function checkAction(view: TrackedView, action: Action): Problem[] {
  switch (action.kind) {
    case "form.submit":
      return checkSubmit(view, action);
    case "button.click":
      return checkClick(view, action);
    case "table.add_row":
      return checkAddRow(view, action);
    case "table.delete_row":
      return checkDeleteRow(view, action);
    case "table.save":
      return checkSave(view, action);
    case "a2ui.action":
      return checkA2uiAction(view.surface, action).map(({ message, path }) => invalid(message, ...path));
    case "input.submit":
      return [invalid("input.submit answers a call, not a view", "kind")];
  }
}

/** Mark a form or button as used, unless it may repeat. */
function markUsed(view: TrackedView, id: string): void {
  const node = view.active.get(id);
  if (node && node.type !== "table_editor" && !node.repeat) view.used.add(id);
}

function applyEffect(view: TrackedView, action: Action): void {
  if (action.kind === "form.submit") markUsed(view, action.form_id);
  else if (action.kind === "button.click") markUsed(view, action.button_id);
  else if (action.kind === "a2ui.action") {
    if (view.surface) view.used.add(action.component_id);
  } else if (action.kind === "table.delete_row") view.rows.get(action.table_id)?.delete(action.row_id);
  else if (action.kind === "table.save") applySave(view, action);
}

function applySave(view: TrackedView, { table_id, deleted = [] }: ActionOf<"table.save">): void {
  const known = view.rows.get(table_id);
  if (!known) return;
  for (const row_id of deleted) known.delete(row_id);
  view.used.add(table_id);
}
