/**
 * Folds events to tokens, cost and time: of the session, of each turn and of each agent. Same as
 * `turnlog.state.meters`.
 *
 * Times are those of the events. A call counts when its result arrives; a call that started an agent counts as that
 * agent. The time in which a call waits for a person is `wait_ms`, never `tool_ms`. The usage in `agent.end` counts
 * only for an agent that reported no completion.
 */

import { addCosts, addCounts } from "../shared/rounding.js";

const TOKENS = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens"];
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
];
const TIME = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z$/;

/** The numbers of a session, a turn or an invocation. */
class Meter {
  ended = null;
  duration_ms = null;
  first_token_ms = null;

  constructor(began, channel = null) {
    this.began = began;
    this.channel = channel;
    for (const name of COUNTS) this[name] = 0;
  }

  addUsage(usage, cost, completions) {
    this.completions = addCounts(this.completions, completions);
    for (const name of TOKENS) this[name] = addCounts(this[name], usage[name] ?? 0);
    if (cost == null) this.unpriced = addCounts(this.unpriced, completions);
    else this.cost_usd = addCosts(this.cost_usd, cost.total_cost);
  }

  /** Set the end. The target of a hand-off may start the turn again. */
  end(ts) {
    this.ended = ts;
    this.duration_ms = elapsedMs(this.began, ts);
  }

  /** Return the numbers that are known and not 0. */
  report() {
    const report = { began: this.began };
    const times = ["channel", "ended", "duration_ms", "first_token_ms"];
    for (const name of times) if (this[name] !== null) report[name] = this[name];
    for (const name of COUNTS) if (this[name] !== 0) report[name] = this[name];
    return report;
  }
}

export class Meters {
  /** @internal */ session = null;
  /** @internal */ turns = new Map();
  /** @internal */ agents = new Map();
  /** @internal by open agent: the calls that have no result, { since, waits, waited_ms } */ openCalls = new Map();

  apply(event) {
    this.session ??= new Meter(event.ts);
    const { trace_id } = event;
    if (trace_id && !this.turns.has(trace_id)) this.turns.set(trace_id, new Meter(event.ts, event.channel));
    REDUCERS.get(event.type)?.(this, event);
  }

  /** @internal The meters that an event counts for. */
  metersFor({ trace_id, agent_id }) {
    return [this.session, this.turns.get(trace_id), this.agents.get(agent_id)].filter(Boolean);
  }

  /** Return all numbers as JSON; the session's also count its turns and their time. */
  report() {
    const lasted = [...this.turns.values()].map((turn) => turn.duration_ms ?? 0);
    const turn_ms = lasted.reduce((sum, ms) => sum + ms, 0);
    const session = { ...this.session?.report(), turns: lasted.length, turn_ms };
    return { session, turns: reportAll(this.turns), agents: reportAll(this.agents) };
  }

  /** Return the meters that members of these channels may see; the session's are the sums of their turns. */
  visibleTo(channels) {
    const visible = new Meters();
    const mine = ([, meter]) => meter.channel === null || channels.includes(meter.channel);
    visible.turns = new Map([...this.turns].filter(mine));
    visible.agents = new Map([...this.agents].filter(mine));
    if (this.session === null) return visible;
    visible.session = new Meter(this.session.began);
    for (const name of COUNTS) {
      const add = name === "cost_usd" ? addCosts : addCounts;
      visible.session[name] = add(...[...visible.turns.values()].map((turn) => turn[name]));
    }
    return visible;
  }
}

const reportAll = (meters) => Object.fromEntries([...meters].map(([name, meter]) => [name, meter.report()]));

function startAgent(meters, event) {
  const { agent_id, payload } = event;
  if (agent_id == null) return;
  meters.openCalls.get(payload.parent_id)?.delete(payload.call_id);
  for (const meter of meters.metersFor(event)) {
    meter.agents += 1;
    meter.running += 1;
    meter.ended = meter.duration_ms = null;
  }
  const own = new Meter(event.ts, event.channel);
  own.running = 1;
  meters.agents.set(agent_id, own);
}

function endAgent(meters, event) {
  const { agent_id, payload } = event;
  const agent = meters.agents.get(agent_id);
  if (!agent || agent.ended !== null) return;
  const unreported = agent.completions === 0 ? payload.usage : null;
  for (const meter of meters.metersFor(event)) {
    if (unreported) meter.addUsage(unreported, payload.cost, Math.max(1, payload.steps ?? 0));
    meter.running -= 1;
    if (meter.running === 0 && meter !== meters.session) meter.end(event.ts);
  }
  meters.openCalls.delete(agent_id);
}

/** Note the first output of an agent. */
function firstOutput(meters, event) {
  if (!meters.agents.has(event.agent_id)) return;
  for (const meter of meters.metersFor(event)) {
    if (meter !== meters.session) meter.first_token_ms ??= elapsedMs(meter.began, event.ts);
  }
}

function startCall(meters, event) {
  firstOutput(meters, event);
  const { agent_id } = event;
  if (!meters.agents.has(agent_id)) return;
  if (!meters.openCalls.has(agent_id)) meters.openCalls.set(agent_id, new Map());
  meters.openCalls.get(agent_id).set(event.payload.call_id, { since: event.ts, waits: null, waited_ms: 0 });
}

function pauseCalls(meters, { agent_id, ts, payload }) {
  for (const { call_id } of payload.calls ?? [payload]) {
    const call = meters.openCalls.get(agent_id)?.get(call_id);
    if (call) call.waits ??= ts;
  }
}

function resumeAnswered(meters, { agent_id, ts, payload }) {
  const call = meters.openCalls.get(agent_id)?.get(payload.call_id);
  if (call) resumeCall(call, ts);
}

function resumeCall(call, ts) {
  if (call.waits === null) return;
  call.waited_ms += elapsedMs(call.waits, ts);
  call.waits = null;
}

function endCall(meters, event) {
  const calls = meters.openCalls.get(event.agent_id);
  const call = calls?.get(event.payload.call_id);
  if (call === undefined) return;
  calls.delete(event.payload.call_id);
  resumeCall(call, event.ts);
  // a clock that went back during a wait must not make the time negative
  const ran = Math.max(0, elapsedMs(call.since, event.ts) - call.waited_ms);
  for (const meter of meters.metersFor(event)) {
    meter.calls += 1;
    meter.failed += event.payload.ok ? 0 : 1;
    meter.tool_ms += ran;
    meter.wait_ms += call.waited_ms;
  }
}

const REDUCERS = new Map([
  ["block.start", firstOutput],
  ["assistant.message", firstOutput],
  ["assistant.thinking", firstOutput],
  ["assistant.block", firstOutput],
  ["agent.start", startAgent],
  ["agent.end", endAgent],
  [
    "agent.usage",
    (meters, event) => {
      const { usage, cost } = event.payload;
      for (const meter of meters.metersFor(event)) meter.addUsage(usage, cost, 1);
    },
  ],
  ["tool.call", startCall],
  ["tool.result", endCall],
  ["tool.await", pauseCalls],
  ["approval.request", pauseCalls],
  ["approval.decision", resumeAnswered],
  ["ui.action", resumeAnswered],
]);

/** Return the milliseconds between two times; 0 if the clock went back. */
const elapsedMs = (earlier, later) => Math.max(0, timestampMs(later) - timestampMs(earlier));

/** Return milliseconds since 1970; 0 for a text that is no valid time, as a foreign log may hold. */
function timestampMs(ts) {
  const at = new Date(TIME.test(ts) ? ts : Number.NaN);
  return !Number.isNaN(at.getTime()) && at.toISOString() === ts && at.getUTCFullYear() > 0 ? at.getTime() : 0;
}
