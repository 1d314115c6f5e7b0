/** Views, and the actions of people on them. A view belongs to its session and its channel. */

import type { LogEvent, View } from "../events.js";
import { ownField } from "../shared/ownership.js";
import { A2UI_KIND, findView, viewKey } from "../views/view-keys.js";
import { type Draft, partFields } from "./draft.js";
import type { ReducerTable } from "./reduce.js";
import { acceptInput } from "./reduce-calls.js";
import type { Part, ViewAction, ViewPart } from "./types.js";

type EventOf<Type extends LogEvent["type"]> = Extract<LogEvent, { type: Type }>;

/** The messages of a view of A2UI; a stored tree may hold anything. */
const messagesOf = ({ kind, tree }: View): unknown[] =>
  kind === A2UI_KIND && Array.isArray(tree.messages) ? tree.messages : [];

const hasField = (value: unknown, name: string): boolean =>
  typeof value === "object" && value !== null && (value as { [name: string]: unknown })[name] !== undefined;

/** Whether an event closes its view: its tree is empty, or the last message of A2UI deletes the surface. */
const isClosing = (view: View): boolean =>
  Object.keys(view.tree).length === 0 || hasField(messagesOf(view).at(-1), "deleteSurface");

/** Whether a view has messages of A2UI that change an open surface. */
const isSurfaceUpdate = (view: View): boolean =>
  view.kind === A2UI_KIND && !isClosing(view) && !hasField(messagesOf(view)[0], "createSurface");

function showView(draft: Draft, event: EventOf<"assistant.view">): void {
  const { view } = event.payload;
  const key = viewKey(event.channel, view.view_id);
  const before = draft.state.views.get(key);
  const part = before && draft.ownPart(before.path, before.part);
  const known = part?.type === "view" ? part : undefined;
  if (isSurfaceUpdate(view)) {
    if (known?.view.kind === view.kind) known.updates = [...known.updates, view.tree];
    return;
  }
  const isGone = isClosing(view);
  if (known) known.state = isGone ? "closed" : "replaced";
  if (before) draft.own("views").delete(key);
  if (!isGone) addView(draft, event, key);
}

function addView(draft: Draft, event: EventOf<"assistant.view">, key: string): void {
  const { view } = event.payload;
  const { view_id } = view;
  const shown: ViewPart = {
    id: event.id,
    seq: event.seq,
    ts: event.ts,
    type: "view",
    view_id,
    event_id: event.id,
    view,
    updates: [],
    state: "open",
    actions: [],
  };
  const path = draft.currentPath(event);
  draft.addPart(path, shown);
  const place = { path, part: shown.id, event_id: event.id, channel: event.channel ?? null, view_id };
  draft.own("views").set(key, place);
}

/** An action answers its call, or belongs to its view; without either it is an event. */
function addAction(draft: Draft, event: EventOf<"ui.action">): void {
  const { actor = null, origin, payload } = event;
  if (payload.call_id != null && acceptInput(draft, event, payload.call_id)) return;
  const place = payload.call_id == null ? findView(draft.state.views.values(), payload, event.channel) : undefined;
  const view = place && draft.ownPart(place.path, place.part);
  if (view?.type === "view") {
    ownField(draft.batch, view, "actions").push(viewAction(event));
    return;
  }
  const part: Part = {
    ...partFields(event),
    ...{ type: "event", name: event.type, payload: payload as never, actor, origin },
  };
  draft.addEventPart(event, part);
}

const viewAction = (event: EventOf<"ui.action">): ViewAction => ({
  id: event.id,
  seq: event.seq,
  ts: event.ts,
  actor: event.actor ?? null,
  turn: event.trace_id ?? null,
  channel: event.channel ?? null,
  action: event.payload.action,
});

export const VIEW_REDUCERS: ReducerTable = { "assistant.view": showView, "ui.action": addAction };
