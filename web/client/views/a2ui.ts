/**
 * The state of an A2UI surface, and actions on it (docs/protocol.md, section 3.7): the same fold as the server's.
 *
 * The server has checked the messages of the log against the published schema. Here messages that do not fit what is
 * open are found, so that a page ignores what the server ignores.
 */

import { isObject } from "../blocks/json.js";
import type { A2uiAction, Json } from "../events.js";
import { codePointLength, pythonRepr } from "../shared/python-text.js";

export { A2UI_KIND } from "./view-keys.js";

type JsonObject = { [key: string]: Json };

/** The state of a surface of A2UI v0.9. `data` is undefined if its data model was removed. */
export interface Surface {
  readonly surfaceId: string;
  readonly creation: { readonly [key: string]: Json };
  readonly components: ReadonlyMap<string, { readonly [key: string]: Json }>;
  readonly data: Json | undefined;
}

type Component = { readonly [key: string]: Json };

/** What is wrong with an action, and where. */
interface ActionProblem {
  message: string;
  path: string[];
}

const VERSION = "v0.9";
const MAX_COMPONENTS = 2000;
const MAX_SHOWN = 2000;
const MAX_LEVELS = 20;
const MAX_SURFACE_SIZE = 200_000;
const MAX_CONTEXT_SIZE = 20_000;
const MAX_NAME_CHARS = 128; // of an unknown name in a path
const FORBIDDEN_NAMES = new Set(["__proto__", "constructor", "prototype"]);
const INDEX = /^(?:0|[1-9][0-9]*)$/;
const ROOT_ID = "root";
const WEB = /^https?:\/\/[^\s\x00-\x20\x7f<>"\\]+$/i;
const BLOB = /^\/?api\/blobs\/[\w/-]+$/;
const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/;
const MEDIA = new Map([
  ["Image", [WEB, BLOB, IMAGE]],
  ["Video", [WEB, BLOB]],
  ["AudioPlayer", [WEB, BLOB]],
]);

/** Messages that do not fit the surface that is open. */
export class SurfaceError extends Error {}

function refuse(message: string): never {
  throw new SurfaceError(message);
}

/** Return the surface after the messages of one event; null if none is open then. Throws `SurfaceError`. */
export function applyMessages(before: Surface | null, viewId: string, tree: { [key: string]: Json }): Surface | null {
  const { messages = [] } = tree;
  if (!Array.isArray(messages)) refuse("expected a list of messages");
  let surface = before;
  for (const message of messages) surface = applyMessage(surface, viewId, message);
  if (messages.length === 0 || surface === null) return null;
  checkLimits(surface);
  return surface;
}

function applyMessage(surface: Surface | null, viewId: string, message: Json): Surface | null {
  if (!isObject(message)) refuse(`expected a message of A2UI ${VERSION}`);
  const type = MESSAGE_TYPES.find((name) => Object.hasOwn(message, name));
  if (!type || message.version !== VERSION) refuse(`expected a message of A2UI ${VERSION}`);
  const body = message[type];
  if (!isObject(body) || body.surfaceId !== viewId) refuse(`expected the surface ${viewId}`);
  if (type === "createSurface") return { surfaceId: viewId, creation: body, components: new Map(), data: {} };
  if (surface === null) refuse(`surface ${viewId} is not open`);
  if (type === "deleteSurface") return null;
  return type === "updateComponents" ? updateComponents(surface, body) : updateData(surface, body);
}

const MESSAGE_TYPES = ["createSurface", "updateComponents", "updateDataModel", "deleteSurface"] as const;

function updateComponents(surface: Surface, { components }: JsonObject): Surface {
  if (!Array.isArray(components) || !components.every(isComponent)) refuse("expected components");
  const merged = new Map(surface.components);
  for (const component of components) merged.set(component.id, component);
  return { ...surface, components: merged };
}

const updateData = (surface: Surface, { path, value }: JsonObject): Surface => ({
  ...surface,
  data: setValue(surface.data, splitPath(path ?? "/"), value),
});

const isComponent = (value: Json): value is JsonObject & { id: string; component: string } =>
  isObject(value) && typeof value.id === "string" && typeof value.component === "string";

/** Return messages that build this surface in a reader that has none. */
export function snapshotMessages({ surfaceId, creation, components, data }: Surface): { [key: string]: Json }[] {
  const messages: JsonObject[] = [{ version: VERSION, createSurface: creation as JsonObject }];
  if (components.size > 0) {
    const listed = [...components.values()] as JsonObject[];
    messages.push({ version: VERSION, updateComponents: { surfaceId, components: listed } });
  }
  if (data !== undefined && !(isObject(data) && Object.keys(data).length === 0)) {
    messages.push({ version: VERSION, updateDataModel: { surfaceId, path: "/", value: data } });
  }
  return messages;
}

// The data model

function splitPath(path: Json): string[] {
  if (typeof path !== "string") refuse("expected a path");
  const names = path.split("/").filter(Boolean);
  return names.map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Return the data with a value at a path; undefined removes it. */
function setValue(before: Json | undefined, [name, ...rest]: string[], value: Json | undefined): Json | undefined {
  if (name === undefined) return value;
  if (FORBIDDEN_NAMES.has(name)) refuse(`expected another name than ${name}`);
  const data = before ?? (INDEX.test(name) ? [] : {});
  if (Array.isArray(data)) {
    if (!INDEX.test(name) || Number(name) > data.length) refuse(`expected an index up to ${data.length}`);
    const items = [...data];
    items[Number(name)] = setValue(data[Number(name)], rest, value) ?? null;
    return items;
  }
  if (!isObject(data)) refuse("expected a path of objects and lists");
  const after = setValue(Object.hasOwn(data, name) ? data[name] : null, rest, value);
  const { [name]: _, ...others } = data;
  return after === undefined ? others : { ...data, [name]: after };
}

/** Return the value at a path, or undefined. */
function getValue(data: Json | undefined, names: readonly string[]): Json | undefined {
  let value = data;
  for (const name of names) {
    if (Array.isArray(value)) value = INDEX.test(name) ? value[Number(name)] : undefined;
    else value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
  }
  return value;
}

// Limits

/** Return the size of a JSON value: one for each value, and one for each character of texts and names. */
export function measure(value: Json): number {
  let size = 0;
  const stack: Json[] = [value];
  while (stack.length > 0) {
    const item = stack.pop() as Json;
    size += 1;
    if (typeof item === "string") size += codePointLength(item);
    else if (Array.isArray(item)) for (const child of item) stack.push(child);
    else if (isObject(item)) {
      for (const [name, child] of Object.entries(item)) {
        size += codePointLength(name);
        stack.push(child);
      }
    }
  }
  return size;
}

/** Return the size of the components and the data of a surface. */
export const surfaceSize = ({ components, data }: Pick<Surface, "components" | "data">): number =>
  [...components.values()].reduce(
    (sum, component) => sum + measure(component as JsonObject),
    data === undefined ? 0 : measure(data),
  );

function checkLimits(surface: Surface): void {
  if (surface.components.size > MAX_COMPONENTS) refuse(`expected at most ${MAX_COMPONENTS} components`);
  if (surfaceSize(surface) > MAX_SURFACE_SIZE) {
    refuse(`expected a surface with a size of at most ${MAX_SURFACE_SIZE}`);
  }
  checkShown(surface);
}

/** A component as a page draws it: with the path of the data that its template is for. */
interface Place {
  id: string;
  scope: string;
}

/** Walk what a page draws, with every copy of a template. */
function checkShown(surface: Surface): void {
  let count = 0;
  const stack: Array<Place & { ancestors: string[] }> = [{ id: ROOT_ID, scope: "", ancestors: [] }];
  for (let place = stack.pop(); place !== undefined; place = stack.pop()) {
    const { id, scope, ancestors } = place;
    const component = surface.components.get(id);
    if (!component) continue;
    count += 1;
    const key = `${scope} ${id}`;
    if (count > MAX_SHOWN) refuse(`expected at most ${MAX_SHOWN} shown components`);
    if (ancestors.includes(key)) refuse(`component ${pythonRepr(id)} contains itself`);
    if (ancestors.length === MAX_LEVELS) refuse(`expected at most ${MAX_LEVELS} levels`);
    checkAddress(surface, component, scope);
    for (const child of childrenOf(surface, component, scope)) stack.push({ ...child, ancestors: [...ancestors, key] });
  }
}

function checkAddress({ data }: Surface, { component, url }: Component, scope: string): void {
  const forms = MEDIA.get(component as string);
  if (!forms || !isObject(url) || url.path === undefined) return;
  const address = getValue(data, splitPath(joinPaths(scope, url.path)));
  if (typeof address !== "string" || address === "") return;
  if (!forms.some((form) => form.test(address)))
    refuse(`expected an http or https address, got ${pythonRepr(address.slice(0, MAX_NAME_CHARS))}`);
}

// The server has checked the components against the schema of A2UI: ids are texts, tabs have a child.
function* childrenOf({ data }: Surface, component: Component, scope: string): Generator<Place> {
  for (const name of ["child", "trigger", "content"]) {
    if (component[name] !== undefined) yield { id: component[name] as string, scope };
  }
  for (const { child } of (component.tabs ?? []) as Array<{ child: string }>) yield { id: child, scope };
  const children = (component.children ?? []) as string[] | { path: string; componentId: string };
  if (Array.isArray(children)) {
    for (const id of children) yield { id, scope };
    return;
  }
  const path = joinPaths(scope, children.path);
  const items = getValue(data, splitPath(path));
  const length = Array.isArray(items) ? Math.min(items.length, MAX_SHOWN + 1) : 0;
  for (let at = 0; at < length; at += 1) yield { id: children.componentId, scope: `${path}/${at}` };
}

const joinPaths = (scope: string, path: Json): string =>
  (path as string).startsWith("/") ? (path as string) : `${scope}/${path}`;

// Actions

/** Return the event that a click on a component sends, or null. */
function eventOf(component: Component | undefined): { name: string; context?: JsonObject } | null {
  const action = component?.action;
  const event = isObject(action) ? action.event : null;
  return (event as { name: string; context?: JsonObject } | null | undefined) ?? null;
}

/** Return the problems of an `a2ui.action`. `surface` is null for views of other kinds. */
export function checkA2uiAction(
  surface: Surface | null,
  { component_id, name, context, data_model }: Omit<A2uiAction, "kind">,
): ActionProblem[] {
  const event = eventOf(surface?.components.get(component_id));
  if (surface === null || event === null)
    return [at(`the view has no button ${pythonRepr(component_id)}`, "component_id")];
  if (name !== event.name) {
    return [at(`button ${pythonRepr(component_id)} sends ${pythonRepr(event.name)}`, "name")];
  }
  const problems = checkContext(event.context ?? {}, context);
  problems.push(...checkBounds(context, MAX_CONTEXT_SIZE, "context"));
  if (data_model === undefined || data_model === null) return problems;
  if (surface.creation.sendDataModel !== true) {
    problems.push(at("the surface does not ask for its data model", "data_model"));
  } else problems.push(...checkBounds(data_model, MAX_SURFACE_SIZE, "data_model"));
  return problems;
}

function checkBounds(value: Json, maxSize: number, field: string): ActionProblem[] {
  const name = forbiddenName(value);
  if (name !== null) return [at(`expected another name than ${name}`, field)];
  return measure(value) > maxSize ? [at(`expected a value with a size of at most ${maxSize}`, field)] : [];
}

const at = (message: string, ...path: string[]): ActionProblem => ({ message, path });
const shorten = (name: string): string => Array.from(name).slice(0, MAX_NAME_CHARS).join("");
const isConstant = (value: Json): boolean => value === null || typeof value !== "object";

/** A constant of the button must come back as it was sent. */
function checkContext(declared: JsonObject, sent: JsonObject): ActionProblem[] {
  const changed = Object.entries(declared).filter(
    ([name, value]) => isConstant(value) && (!Object.hasOwn(sent, name) || sent[name] !== value),
  );
  const unknown = Object.keys(sent).filter((name) => !Object.hasOwn(declared, name));
  return [
    ...changed.map(([name, value]) =>
      at(`${pythonRepr(name)} must be ${pythonLiteral(value)}`, "context", shorten(name)),
    ),
    ...unknown.map((name) => at(`${pythonRepr(name)} is not in the context of the button`, "context", shorten(name))),
  ];
}

const LITERALS = new Map<Json, string>([
  [true, "True"],
  [false, "False"],
  [null, "None"],
]);
const pythonLiteral = (value: Json): string =>
  LITERALS.get(value) ?? (typeof value === "string" ? pythonRepr(value) : String(value));

/** Return the first name in a value that every object has, or null. */
function forbiddenName(value: Json): string | null {
  const stack: Json[] = [value];
  while (stack.length > 0) {
    const item = stack.pop() as Json;
    if (item === null || typeof item !== "object") continue;
    const found = Array.isArray(item) ? undefined : Object.keys(item).find((name) => FORBIDDEN_NAMES.has(name));
    if (found !== undefined) return found;
    stack.push(...Object.values(item));
  }
  return null;
}
