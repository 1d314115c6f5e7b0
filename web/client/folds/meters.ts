/**
 * Folds events to tokens, cost and time: of the session, of each turn and of each agent. Same as
 * `turnlog.state.meters`.
 *
 * Times are those of the events. A call counts when its result arrives; a call that started an agent counts as that
 * agent. The time in which a call waits for a person is `wait_ms`, never `tool_ms`. The usage in `agent.end` counts
 * only for an agent that reported no completion.
 */

import type { Cost, Envelope, Payloads, Usage } from "../events.js";
import { IN_PLACE, type Owned, type Ownership, ownEntry, ownField } from "../shared/ownership.js";
import { LayeredMap } from "../shared/layered-map.js";
import { addCosts, addCounts } from "../shared/rounding.js";
import type { AnyEvent } from "./event-text.js";

const TOKENS = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens"] as const;
const COUNTS = [
  "completions",
  ...TOKENS,
  "cost_usd",
  "unpriced",
  "calls",
  "failed",
  "tool_ms",
  "wait_ms",
  "agents",
  "running",
] as const;
const TIME = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z$/;

type CountName = (typeof COUNTS)[number];

/**
 * The numbers of a session, a turn or an agent. `cost_usd` is the sum of known costs, `unpriced` completions have
 * none; `tool_ms` is how long finished calls ran, without `wait_ms`, in which they waited for a person.
 */
export type Meter = { readonly [Name in CountName]: number } & {
  readonly began: string;
  readonly channel: string | null;
  readonly ended: string | null;
  readonly duration_ms: number | null;
  readonly first_token_ms: number | null;
};

/** A `Meter` without the numbers that are 0 or unknown. */
export type MeterReport = { began: string; channel?: string; ended?: string } & {
  [Name in CountName | "duration_ms" | "first_token_ms"]?: number;
};

export interface MetersReport {
  session: Partial<MeterReport> & { turns: number; turn_ms: number };
  turns: { [turn: string]: MeterReport };
  agents: { [agentId: string]: MeterReport };
}

/** A call without a result: its start, since when it waits for a person, and how long it has waited before. */
interface TimedCall {
  readonly since: string;
  readonly waits: string | null;
  readonly waited_ms: number;
}

export interface MetersState {
  /** Null while the session has no event. */
  readonly session: Meter | null;
  readonly turns: ReadonlyMap<string, Meter>;
  readonly agents: ReadonlyMap<string, Meter>;
  /** By open agent: the calls that have no result. */
  readonly openCalls: ReadonlyMap<string, ReadonlyMap<string, TimedCall>>;
}

export const emptyMeters = (): MetersState => ({
  session: null,
  turns: new LayeredMap(),
  agents: new LayeredMap(),
  openCalls: new Map(),
});

/** A literal: objects with the same fields in the same order are fast. */
const newMeter = (began: string, channel: string | null = null): Owned<Meter> => ({
  began,
  channel,
  ended: null,
  duration_ms: null,
  first_token_ms: null,
  completions: 0,
  input_tokens: 0,
  output_tokens: 0,
  cache_read_tokens: 0,
  cache_creation_tokens: 0,
  cost_usd: 0,
  unpriced: 0,
  calls: 0,
  failed: 0,
  tool_ms: 0,
  wait_ms: 0,
  agents: 0,
  running: 0,
});

/** Folds events to tokens, cost and time. */
export class Meters implements MetersState {
  session: Meter | null = null;
  turns: Map<string, Meter> = new Map();
  agents: Map<string, Meter> = new Map();
  openCalls: Map<string, ReadonlyMap<string, TimedCall>> = new Map();

  apply(event: AnyEvent): void {
    reduceMeters(this, event, IN_PLACE);
  }

  /** Return all numbers as JSON; the session's also count its turns and their time. */
  report(): MetersReport {
    return reportMeters(this);
  }

  /** Return the meters that members of these channels may see; the session's are the sums of their turns. */
  visibleTo(channels: string[]): Meters {
    const visible = new Meters();
    const mine = ([, { channel }]: [string, Meter]) => channel === null || channels.includes(channel);
    visible.turns = new Map([...this.turns].filter(mine));
    visible.agents = new Map([...this.agents].filter(mine));
    if (this.session === null) return visible;
    const session = newMeter(this.session.began);
    for (const name of COUNTS) {
      const add = name === "cost_usd" ? addCosts : addCounts;
      session[name] = add(...[...visible.turns.values()].map((turn) => turn[name]));
    }
    visible.session = session;
    return visible;
  }
}

/** Return all numbers as JSON; the session's also count its turns and their time. */
export function reportMeters({ session, turns, agents }: Omit<MetersState, "openCalls">): MetersReport {
  const lasted = [...turns.values()].map((turn) => turn.duration_ms ?? 0);
  const turn_ms = lasted.reduce((sum, ms) => sum + ms, 0);
  const totals = { ...(session && reportMeter(session)), turns: lasted.length, turn_ms };
  return { session: totals, turns: reportAll(turns), agents: reportAll(agents) };
}

const reportAll = (meters: ReadonlyMap<string, Meter>) =>
  Object.fromEntries([...meters].map(([name, meter]) => [name, reportMeter(meter)]));

/** Return the numbers that are known and not 0. */
export function reportMeter(meter: Meter): MeterReport {
  const times = ["channel", "ended", "duration_ms", "first_token_ms"] as const;
  const known = times.filter((name) => meter[name] !== null).map((name) => [name, meter[name]]);
  const counted = COUNTS.filter((name) => meter[name] !== 0).map((name) => [name, meter[name]]);
  return { began: meter.began, ...Object.fromEntries([...known, ...counted]) };
}

/** Whether events of a type change meters. The first event of a session or a turn begins one, whatever its type. */
export const isCounted = (type: string): boolean => REDUCERS.has(type);

/** Apply an event to meters that `owner` owns. */
export function reduceMeters(meters: Owned<MetersState>, event: AnyEvent, owner: Ownership): void {
  meters.session ??= owner.adopt(newMeter(event.ts));
  const { trace_id } = event;
  if (trace_id && !meters.turns.has(trace_id)) {
    const turn = owner.adopt(newMeter(event.ts, event.channel ?? null));
    ownField(owner, meters, "turns").set(trace_id, turn);
  }
  REDUCERS.get(event.type)?.(meters, event, owner);
}

type Reducer<Payload> = (meters: Owned<MetersState>, event: Envelope<string, Payload>, owner: Ownership) => void;

// Literals of all fields: several times as fast as a spread.
const copyMeter = (meter: Meter): Meter => ({
  began: meter.began,
  channel: meter.channel,
  ended: meter.ended,
  duration_ms: meter.duration_ms,
  first_token_ms: meter.first_token_ms,
  completions: meter.completions,
  input_tokens: meter.input_tokens,
  output_tokens: meter.output_tokens,
  cache_read_tokens: meter.cache_read_tokens,
  cache_creation_tokens: meter.cache_creation_tokens,
  cost_usd: meter.cost_usd,
  unpriced: meter.unpriced,
  calls: meter.calls,
  failed: meter.failed,
  tool_ms: meter.tool_ms,
  wait_ms: meter.wait_ms,
  agents: meter.agents,
  running: meter.running,
});
const copyTimedCall = (call: TimedCall): TimedCall => ({ ...call });

/** Own the meters that an event counts for: of the session, of its turn, of its agent. */
function ownMeters(
  meters: Owned<MetersState>,
  { trace_id = "", agent_id = "" }: AnyEvent,
  owner: Ownership,
): Owned<Meter>[] {
  const counted: Owned<Meter>[] = [ownField(owner, meters, "session", copyMeter)];
  if (meters.turns.has(trace_id)) {
    counted.push(ownEntry(owner, ownField(owner, meters, "turns"), trace_id, copyMeter) as Owned<Meter>);
  }
  if (meters.agents.has(agent_id)) {
    counted.push(ownEntry(owner, ownField(owner, meters, "agents"), agent_id, copyMeter) as Owned<Meter>);
  }
  return counted;
}

function ownCall(
  meters: Owned<MetersState>,
  agentId: string | undefined,
  callId: string | undefined,
  owner: Ownership,
) {
  if (agentId === undefined || callId === undefined || !meters.openCalls.get(agentId)?.has(callId)) return undefined;
  const calls = ownEntry(owner, ownField(owner, meters, "openCalls"), agentId);
  return calls && ownEntry(owner, calls, callId, copyTimedCall);
}

function deleteCall(meters: Owned<MetersState>, agentId: string | undefined, callId: string, owner: Ownership) {
  if (agentId === undefined || !meters.openCalls.get(agentId)?.has(callId)) return;
  ownEntry(owner, ownField(owner, meters, "openCalls"), agentId)?.delete(callId);
}

function addUsage(meter: Owned<Meter>, usage: Usage, cost: Cost | undefined, completions: number): void {
  meter.completions = addCounts(meter.completions, completions);
  for (const name of TOKENS) meter[name] = addCounts(meter[name], usage[name] ?? 0);
  if (cost == null) meter.unpriced = addCounts(meter.unpriced, completions);
  else meter.cost_usd = addCosts(meter.cost_usd, cost.total_cost);
}

const startAgent: Reducer<Payloads["agent.start"]> = (meters, event, owner) => {
  const { agent_id, payload } = event;
  if (agent_id == null) return;
  if (payload.call_id !== undefined) deleteCall(meters, payload.parent_id, payload.call_id, owner);
  for (const meter of ownMeters(meters, event, owner)) {
    meter.agents += 1;
    meter.running += 1;
    // the target of a hand-off may start the turn again
    meter.ended = meter.duration_ms = null;
  }
  const own = owner.adopt(newMeter(event.ts, event.channel ?? null));
  own.running = 1;
  ownField(owner, meters, "agents").set(agent_id, own);
};

const endAgent: Reducer<Payloads["agent.end"]> = (meters, event, owner) => {
  const { agent_id, payload } = event;
  const agent = meters.agents.get(agent_id ?? "");
  if (!agent || agent.ended !== null) return;
  const unreported = agent.completions === 0 ? payload.usage : null;
  const [session, ...others] = ownMeters(meters, event, owner);
  for (const meter of [session as Owned<Meter>, ...others]) {
    if (unreported) addUsage(meter, unreported, payload.cost, Math.max(1, payload.steps ?? 0));
    meter.running -= 1;
  }
  for (const meter of others.filter(({ running }) => running === 0)) {
    meter.ended = event.ts;
    meter.duration_ms = elapsedMs(meter.began, event.ts);
  }
  if (meters.openCalls.has(agent_id ?? "")) ownField(owner, meters, "openCalls").delete(agent_id ?? "");
};

/** Note the first output of an agent. */
const firstOutput: Reducer<unknown> = (meters, event, owner) => {
  const agent = meters.agents.get(event.agent_id ?? "");
  const turn = meters.turns.get(event.trace_id ?? "");
  if (!agent || (agent.first_token_ms !== null && turn?.first_token_ms !== null)) return;
  for (const meter of ownMeters(meters, event, owner).slice(1)) {
    meter.first_token_ms ??= elapsedMs(meter.began, event.ts);
  }
};

const startCall: Reducer<Payloads["tool.call"]> = (meters, event, owner) => {
  firstOutput(meters, event, owner);
  const { agent_id = "" } = event;
  if (!meters.agents.has(agent_id)) return;
  const open = ownField(owner, meters, "openCalls");
  if (!open.has(agent_id)) open.set(agent_id, owner.adopt(new Map()));
  const call: TimedCall = { since: event.ts, waits: null, waited_ms: 0 };
  ownEntry(owner, open, agent_id)?.set(event.payload.call_id, call);
};

const pauseCalls: Reducer<Payloads["tool.await"] | Payloads["approval.request"]> = (meters, event, owner) => {
  const { agent_id, ts, payload } = event;
  for (const { call_id } of "calls" in payload ? payload.calls : [payload]) {
    const call = ownCall(meters, agent_id, call_id, owner);
    if (call) call.waits ??= ts;
  }
};

const resumeAnswered: Reducer<{ call_id?: string }> = (meters, { agent_id, ts, payload }, owner) => {
  const call = ownCall(meters, agent_id, payload.call_id, owner);
  if (call) resumeCall(call, ts);
};

function resumeCall(call: Owned<TimedCall>, ts: string): void {
  if (call.waits === null) return;
  call.waited_ms += elapsedMs(call.waits, ts);
  call.waits = null;
}

const endCall: Reducer<Payloads["tool.result"]> = (meters, event, owner) => {
  const { call_id } = event.payload;
  const call = meters.openCalls.get(event.agent_id ?? "")?.get(call_id);
  if (call === undefined) return;
  deleteCall(meters, event.agent_id, call_id, owner);
  const waited_ms = call.waited_ms + (call.waits === null ? 0 : elapsedMs(call.waits, event.ts));
  // a clock that went back during a wait must not make the time negative
  const ran = Math.max(0, elapsedMs(call.since, event.ts) - waited_ms);
  for (const meter of ownMeters(meters, event, owner)) {
    meter.calls += 1;
    meter.failed += event.payload.ok ? 0 : 1;
    meter.tool_ms += ran;
    meter.wait_ms += waited_ms;
  }
};

const countUsage: Reducer<Payloads["agent.usage"]> = (meters, event, owner) => {
  const { usage, cost } = event.payload;
  for (const meter of ownMeters(meters, event, owner)) addUsage(meter, usage, cost, 1);
};

const REDUCERS = new Map<string, Reducer<any>>([
  ["block.start", firstOutput],
  ["assistant.message", firstOutput],
  ["assistant.thinking", firstOutput],
  ["assistant.block", firstOutput],
  ["agent.start", startAgent],
  ["agent.end", endAgent],
  ["agent.usage", countUsage],
  ["tool.call", startCall],
  ["tool.result", endCall],
  ["tool.await", pauseCalls],
  ["approval.request", pauseCalls],
  ["approval.decision", resumeAnswered],
  ["ui.action", resumeAnswered],
]);

/** Return the milliseconds between two times; 0 if the clock went back. */
const elapsedMs = (earlier: string, later: string): number => Math.max(0, timestampMs(later) - timestampMs(earlier));

/** Return milliseconds since 1970; 0 for a text that is no valid time, as a foreign log may hold. */
function timestampMs(ts: string): number {
  if (!TIME.test(ts) || ts.startsWith("0000")) return 0;
  const ms = Date.parse(ts);
  if (Number.isNaN(ms)) return 0;
  // `Date` takes the 31st of a short month as a day of the next one.
  const isSafeDay = ts.slice(8, 10) < "29" && ts.slice(11, 13) < "24";
  return isSafeDay || new Date(ms).toISOString() === ts ? ms : 0;
}
