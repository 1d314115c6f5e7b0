/**
 * Folds events to the snapshots of a session, live or replayed. Pure: a state that was returned never changes.
 *
 * A message that is queued behind a turn is in `queue` and joins the messages when its own turn starts. What a called
 * agent does is in an agent part behind the call, at any depth; the target of a hand-off continues where the source
 * was. When all agents have ended the messages do not depend on live events: a reload shows the same.
 */

import type { EventType, Json, LogEvent } from "../events.js";
import { type AnyEvent, type IsDeclared, noTypes } from "../folds/event-text.js";
import { isCounted } from "../folds/meters.js";
import { Draft, messageFields, partFields } from "./draft.js";
import type { FoldState } from "./fold-state.js";
import { AGENT_REDUCERS } from "./reduce-agents.js";
import { CALL_REDUCERS } from "./reduce-calls.js";
import { TEXT_REDUCERS } from "./reduce-texts.js";
import { VIEW_REDUCERS } from "./reduce-views.js";
import type { FilePart, Member, Part } from "./types.js";

/** Changes a draft by one event. */
export type Reducer<Type extends EventType> = (draft: Draft, event: Extract<LogEvent, { type: Type }>) => void;

export type ReducerTable = { readonly [Type in EventType]?: Reducer<Type> };

/** The events of these types begin, end and change no agent and no call. */
const CONTENT_TYPES = new Set<string>([
  "block.start",
  "block.delta",
  "block.end",
  "assistant.message",
  "assistant.thinking",
  "assistant.block",
  "assistant.view",
  "assistant.files",
  "tool.progress",
] satisfies EventType[]);

/** Return the state after some events, which share nothing with `state` that they change. */
export function reduceEvents(
  state: FoldState,
  events: readonly AnyEvent[],
  isDeclared: IsDeclared = noTypes,
): FoldState {
  if (events.length === 0) return state;
  const draft = new Draft(state);
  for (const event of events) reduceEvent(draft, event, isDeclared);
  return draft.finish();
}

function reduceEvent(draft: Draft, event: AnyEvent, isDeclared: IsDeclared): void {
  draft.snapshot.last = event.seq;
  const step = STEPS.get(event.type);
  if (step) step.reduce(draft, event);
  else draft.addEventPart(event, eventPart(event));

  if (step?.isContent) draft.state.deferEvent(event, draft.batch);
  else {
    draft.state.applyEvent(event, draft.batch, isDeclared);
    draft.hasWorkChanged = true;
  }
  draft.applyMeters(event, step?.isCounted ?? false);
}

const eventPart = (event: AnyEvent): Part => ({
  ...partFields(event),
  type: "event",
  name: event.type,
  payload: event.payload as Json,
  actor: event.actor ?? null,
  origin: event.origin,
});

/** A start of the server is shown only after its end. */
const startProcess: Reducer<"process.start"> = (draft, event) => {
  const isServer = event.payload.process === "server";
  if (!isServer || draft.state.isServerDown) draft.addEventPart(event, eventPart(event));
  if (isServer) draft.state.isServerDown = false;
};

const endProcess: Reducer<"process.end"> = (draft, event) => {
  if (event.payload.process === "server") draft.state.isServerDown = true;
  else draft.addEventPart(event, eventPart(event));
};

/** Members who left stay in the list without roles: their messages have their names. */
const changeMember: Reducer<"session.member"> = (draft, { payload: { principal, name, roles = [] } }) => {
  const { members } = draft.snapshot;
  const before = members.find((member) => member.principal === principal);
  const after: Member = { principal, name: name ?? before?.name ?? null, roles };
  draft.snapshot.members = before ? members.map((member) => (member === before ? after : member)) : [...members, after];
};

const addFiles: Reducer<"assistant.files"> = (draft, event) => {
  event.payload.files.forEach(({ filename, storage_location }, at) => {
    const part: FilePart = {
      ...partFields(event),
      id: `${event.id} ${at}`,
      type: "file",
      src: storage_location,
      filename,
      media_type: null,
      size_bytes: null,
    };
    if (event.agent_id === undefined)
      draft.addMessage({ ...messageFields(event), id: part.id, role: "event", parts: [part] });
    else draft.addPart(draft.currentPath(event), part);
  });
};

const OTHER_REDUCERS: ReducerTable = {
  "assistant.files": addFiles,
  "process.start": startProcess,
  "process.end": endProcess,
  "session.error": (draft, event) =>
    draft.addEventPart(event, { ...partFields(event), type: "error", error: event.payload }),
  "session.title": (draft, event) => {
    draft.snapshot.title = event.payload.title;
  },
  "session.close": (draft, { seq, ts, payload: { by, reason } }) => {
    draft.snapshot.ending = { actor: by, seq, ts, reason: reason ?? null };
  },
  "session.member": changeMember,
};

/** Types that are not shown. */
const HIDDEN_TYPES = ["session.invite", "session.invite_end", "assistant.block", "agent.checkpoint", "process.auth"];

type AnyReducer = (draft: Draft, event: AnyEvent) => void;

const REDUCERS = {
  ...Object.fromEntries(HIDDEN_TYPES.map((type) => [type, () => undefined])),
  ...AGENT_REDUCERS,
  ...CALL_REDUCERS,
  ...TEXT_REDUCERS,
  ...VIEW_REDUCERS,
  ...OTHER_REDUCERS,
} as { [type: string]: AnyReducer };

/** What to do with the events of a type: one look-up for each event. */
interface Step {
  readonly reduce: AnyReducer;
  readonly isContent: boolean;
  /** Whether they count in the meters. */
  readonly isCounted: boolean;
}

const STEPS = new Map<string, Step>(
  Object.entries(REDUCERS).map(([type, reduce]) => {
    return [type, { reduce, isContent: CONTENT_TYPES.has(type), isCounted: isCounted(type) }];
  }),
);
