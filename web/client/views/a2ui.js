/**
 * The state of an A2UI surface, and actions on it (docs/protocol.md, section 3.7): the same fold as the server's.
 *
 * The server has checked the messages of the log against the published schema. Here messages that do not fit what is
 * open are found, so that a page ignores what the server ignores.
 */

import { isObject } from "../blocks/json.js";
import { codePointLength, pythonRepr } from "../shared/python-text.js";

export const A2UI_KIND = "a2ui.v0.9";
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

const refuse = (message) => {
  throw new SurfaceError(message);
};

/**
 * Return the surface after the messages of one event; null if none is open then. Throws `SurfaceError`. A surface is
 * { surfaceId, creation, components: Map, data }; `data` is undefined if it was removed.
 */
export function applyMessages(surface, viewId, tree) {
  const { messages = [] } = tree;
  if (!Array.isArray(messages)) refuse("expected a list of messages");
  for (const message of messages) surface = applyMessage(surface, viewId, message);
  if (messages.length === 0 || surface === null) return null;
  checkLimits(surface);
  return surface;
}

function applyMessage(surface, viewId, message) {
  const type = isObject(message) && Object.keys(REDUCERS).find((name) => Object.hasOwn(message, name));
  if (!type || message.version !== VERSION) refuse(`expected a message of A2UI ${VERSION}`);
  const body = message[type];
  if (!isObject(body) || body.surfaceId !== viewId) refuse(`expected the surface ${viewId}`);
  if (type !== "createSurface" && surface === null) refuse(`surface ${viewId} is not open`);
  return REDUCERS[type](surface, body);
}

const REDUCERS = {
  createSurface: (_, body) => ({ surfaceId: body.surfaceId, creation: body, components: new Map(), data: {} }),
  updateComponents(surface, { components }) {
    if (!Array.isArray(components) || !components.every(isComponent)) refuse("expected components");
    const merged = new Map([...surface.components, ...components.map((component) => [component.id, component])]);
    return { ...surface, components: merged };
  },
  updateDataModel: (surface, body) => ({
    ...surface,
    data: setValue(surface.data, splitPath(body.path ?? "/"), body.value),
  }),
  deleteSurface: () => null,
};

const isComponent = (value) => isObject(value) && typeof value.id === "string" && typeof value.component === "string";

/** Return messages that build this surface in a reader that has none. */
export function snapshotMessages({ surfaceId, creation, components, data }) {
  const messages = [{ version: VERSION, createSurface: creation }];
  if (components.size > 0) {
    messages.push({ version: VERSION, updateComponents: { surfaceId, components: [...components.values()] } });
  }
  if (data !== undefined && !(isObject(data) && Object.keys(data).length === 0)) {
    messages.push({ version: VERSION, updateDataModel: { surfaceId, path: "/", value: data } });
  }
  return messages;
}

// The data model

function splitPath(path) {
  if (typeof path !== "string") refuse("expected a path");
  const names = path.split("/").filter(Boolean);
  return names.map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Return the data with a value at a path; undefined removes it. */
function setValue(data, [name, ...rest], value) {
  if (name === undefined) return value;
  if (FORBIDDEN_NAMES.has(name)) refuse(`expected another name than ${name}`);
  if (data === null || data === undefined) data = INDEX.test(name) ? [] : {};
  if (Array.isArray(data)) {
    if (!INDEX.test(name) || Number(name) > data.length) refuse(`expected an index up to ${data.length}`);
    return Object.assign([...data], { [name]: setValue(data[name], rest, value) ?? null });
  }
  if (!isObject(data)) refuse("expected a path of objects and lists");
  const after = setValue(Object.hasOwn(data, name) ? data[name] : null, rest, value);
  if (after !== undefined) return { ...data, [name]: after };
  const { [name]: _, ...others } = data;
  return others;
}

/** Return the value at a path, or undefined. */
function getValue(data, names) {
  for (const name of names) {
    const has = Array.isArray(data) ? INDEX.test(name) && Number(name) < data.length : isObject(data);
    if (!has || !Object.hasOwn(data, name)) return undefined;
    data = data[name];
  }
  return data;
}

// Limits

/** Return the size of a JSON value: one for each value, and one for each character of texts and names. */
export function measure(value) {
  let size = 0;
  const stack = [value];
  while (stack.length > 0) {
    const item = stack.pop();
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

export const surfaceSize = ({ components, data }) =>
  [...components.values()].reduce((sum, component) => sum + measure(component), data === undefined ? 0 : measure(data));

function checkLimits(surface) {
  if (surface.components.size > MAX_COMPONENTS) refuse(`expected at most ${MAX_COMPONENTS} components`);
  if (surfaceSize(surface) > MAX_SURFACE_SIZE) {
    refuse(`expected a surface with a size of at most ${MAX_SURFACE_SIZE}`);
  }
  checkShown(surface);
}

/** Walk what a page draws, with every copy of a template. */
function checkShown(surface) {
  let count = 0;
  const stack = [{ id: ROOT_ID, scope: "", ancestors: [] }];
  while (stack.length > 0) {
    const { id, scope, ancestors } = stack.pop();
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

function checkAddress({ data }, { component, url }, scope) {
  const forms = MEDIA.get(component);
  if (!forms || !isObject(url) || url.path === undefined) return;
  const address = getValue(data, splitPath(joinPaths(scope, url.path)));
  const isWrong = typeof address === "string" && address !== "" && !forms.some((form) => form.test(address));
  if (isWrong) refuse(`expected an http or https address, got ${pythonRepr(address.slice(0, MAX_NAME_CHARS))}`);
}

function* childrenOf({ data }, component, scope) {
  for (const name of ["child", "trigger", "content"]) {
    if (component[name] !== undefined) yield { id: component[name], scope };
  }
  for (const { child } of component.tabs ?? []) yield { id: child, scope };
  const { children = [] } = component;
  if (Array.isArray(children)) {
    for (const id of children) yield { id, scope };
    return;
  }
  const path = joinPaths(scope, children.path);
  const items = getValue(data, splitPath(path));
  const length = Array.isArray(items) ? Math.min(items.length, MAX_SHOWN + 1) : 0;
  for (let at = 0; at < length; at += 1) yield { id: children.componentId, scope: `${path}/${at}` };
}

const joinPaths = (scope, path) => (path.startsWith("/") ? path : `${scope}/${path}`);

// Actions

/** Return the event that a click on a component sends, or null. */
const eventOf = (component) => component?.action?.event ?? null;

/** Return the problems of an `a2ui.action`: [{ message, path }]. `surface` is null for views of other kinds. */
export function checkA2uiAction(surface, { component_id, name, context, data_model }) {
  const event = eventOf(surface?.components.get(component_id));
  if (event === null) return [at(`the view has no button ${pythonRepr(component_id)}`, "component_id")];
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

function checkBounds(value, maxSize, field) {
  const name = forbiddenName(value);
  if (name !== null) return [at(`expected another name than ${name}`, field)];
  return measure(value) > maxSize ? [at(`expected a value with a size of at most ${maxSize}`, field)] : [];
}

const at = (message, ...path) => ({ message, path });
const shorten = (name) => Array.from(name).slice(0, MAX_NAME_CHARS).join("");
const isConstant = (value) => value === null || typeof value !== "object";

/** A constant of the button must come back as it was sent. */
function checkContext(declared, sent) {
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

const LITERALS = new Map([
  [true, "True"],
  [false, "False"],
  [null, "None"],
]);
const pythonLiteral = (value) => LITERALS.get(value) ?? (typeof value === "string" ? pythonRepr(value) : String(value));

/** Return the first name in a value that every object has, or null. */
function forbiddenName(value) {
  const stack = [value];
  while (stack.length > 0) {
    const item = stack.pop();
    if (item === null || typeof item !== "object") continue;
    const found = Array.isArray(item) ? undefined : Object.keys(item).find((name) => FORBIDDEN_NAMES.has(name));
    if (found !== undefined) return found;
    stack.push(...Object.values(item));
  }
  return null;
}
