/**
 * Filters the events of a log, and counts what a filter can choose from. Pure.
 *
 * `EventFilter` tests events in batches, so that a search in a long session never blocks a frame. The search text of
 * an event is its JSON, built once and cached as long as the event lives.
 */

/** The filter that every event passes. `turn`, `invocation` and `call` are set from an event, not typed. */
export const NO_FILTER = Object.freeze({
  text: "",
  type: "",
  agent: "",
  depth: "",
  turn: "",
  invocation: "",
  call: "",
});
export const NO_AGENT = "-"; // the agent of events without one
const BATCH = 32; // events between two calls of `shouldYield`

/** By field of a filter: the test of an event. Cheap tests come first. */
const TESTS = {
  type:
    (wanted) =>
    ({ type }) =>
      type === wanted || (wanted.endsWith(".") && type.startsWith(wanted)),
  agent:
    (wanted) =>
    ({ agent_name }) =>
      (agent_name ?? NO_AGENT) === wanted,
  depth:
    (wanted) =>
    ({ depth }) =>
      (depth ?? 0) <= Number(wanted),
  turn:
    (wanted) =>
    ({ trace_id }) =>
      trace_id === wanted,
  invocation: (wanted) => (event) => event.agent_id === wanted || event.payload.parent_id === wanted,
  call:
    (wanted) =>
    ({ payload }) =>
      callIds(payload).includes(wanted),
  text: (wanted) => (event) => searchText(event).includes(wanted.toLowerCase()),
};

/** Return the ids of the calls in a payload. */
export function callIds({ call_id, calls }) {
  const awaited = Array.isArray(calls) ? calls.map((call) => call?.call_id) : [];
  return [call_id, ...awaited].filter((id) => typeof id === "string");
}

const texts = new WeakMap(); // event -> its JSON in lower case

function searchText(event) {
  if (!texts.has(event)) texts.set(event, JSON.stringify(event).toLowerCase());
  return texts.get(event);
}

/** The events that pass a filter, tested in batches. */
export class EventFilter {
  events = []; // in order
  at = 0; // how many events were tested
  #tests;

  constructor(filter) {
    this.#tests = Object.keys(TESTS)
      .filter((name) => filter[name])
      .map((name) => TESTS[name](filter[name]));
  }

  /** Test further events until `shouldYield()`. Return whether all were tested. */
  run(events, shouldYield) {
    if (this.#tests.length === 0) {
      this.events = events;
      this.at = events.length;
    }
    while (this.at < events.length) {
      const end = Math.min(this.at + BATCH, events.length);
      for (; this.at < end; this.at += 1) this.#testEvent(events[this.at]);
      if (shouldYield()) break;
    }
    return this.at === events.length;
  }

  #testEvent(event) {
    if (this.#tests.every((passes) => passes(event))) this.events.push(event);
  }
}

/** Return the next event of the same type in a direction, 1 or -1; undefined if there is none. */
export function nextOfType(events, at, step) {
  for (let index = at + step; index >= 0 && index < events.length; index += step) {
    if (events[index].type === events[at].type) return events[index];
  }
  return undefined;
}

/** Folds events to counts of their types, agents and depths. */
export class EventFacets {
  types = new Map();
  agents = new Map(); // by name; NO_AGENT for events without one
  depth = 0; // the deepest

  apply({ type, agent_name = NO_AGENT, depth = 0 }) {
    this.types.set(type, (this.types.get(type) ?? 0) + 1);
    this.agents.set(agent_name, (this.agents.get(agent_name) ?? 0) + 1);
    this.depth = Math.max(this.depth, depth);
  }

  /** The types to choose from: `[value, count]`, families (ending with a dot) before their types. */
  get choices() {
    const families = new Map();
    for (const [type, count] of [...this.types].sort(([one], [other]) => (one < other ? -1 : 1))) {
      const first = `${type.split(".")[0]}.`;
      families.set(first, [...(families.get(first) ?? []), [type, count]]);
    }
    const sum = (types) => types.reduce((all, [, count]) => all + count, 0);
    return [...families].flatMap(([first, types]) => (types.length > 1 ? [[first, sum(types)], ...types] : types));
  }
}
