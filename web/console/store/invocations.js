/**
 * Folds events to all invocations of a session, open and ended, by turn and nested by caller. The target of a hand-off
 * is beside its source. Usage is in the client's `Meters`.
 */

import { oneLine } from "./one-line.js";

const MAX_TITLE_CHARS = 80;

/** By stop reason: a label and a class. */
const END_LABELS = {
  end_turn: ["done", "good"],
  stop_sequence: ["done", "good"],
  handoff: ["handed over", "good"],
  max_steps: ["out of steps", ""],
  max_tokens: ["out of tokens", ""],
  context_window: ["context full", "bad"],
  refusal: ["refused", "bad"],
  cancelled: ["stopped", ""],
  timeout: ["took too long", "bad"],
  error: ["failed", "bad"],
};

export class Invocations {
  turns = new Map();
  byId = new Map();
  handoffSources = new Map(); // agent id -> the agent that handed over to it

  apply(event) {
    const turn = this.#turn(event);
    REDUCERS[event.type]?.(this, event, turn);
  }

  /** Return the turn of an event. Agents without a turn share one without a name. */
  #turn(event) {
    const { trace_id = "", seq, type } = event;
    if (!trace_id && type !== "agent.start") return null;
    if (!this.turns.has(trace_id)) {
      const number = this.turns.size + 1;
      this.turns.set(trace_id, { turn: trace_id, number, seq, words: turnTitle(event), agents: [] });
    }
    return this.turns.get(trace_id);
  }
}

const shorten = (text) => oneLine(String(text), MAX_TITLE_CHARS);

function turnTitle({ type, payload }) {
  const titles = { "ui.message": payload.text, "ui.command": payload.command?.kind, "ui.action": payload.action?.kind };
  return shorten(titles[type] ?? type);
}

/**
 * Return the prompt of a called agent in one line; "" for an agent that answers a person, whose prompt is the turn's
 * title.
 */
export const promptSubject = ({ via, prompt }) => (via === "prompt" ? "" : shorten(prompt ?? ""));

function startAgent(fold, event, turn) {
  const { agent_id, seq, channel = null, payload } = event;
  if (agent_id === undefined || fold.byId.has(agent_id)) return;
  const { name, via, model = null, parent_id = null, resumes = null } = payload;
  const from = fold.handoffSources.get(agent_id) ?? null;
  const subject = promptSubject(payload);
  const invocation = {
    agent_id,
    name,
    subject,
    via,
    model,
    resumes,
    channel,
    seq,
    ended: null,
    from,
    to: null,
    agents: [],
  };
  fold.byId.set(agent_id, invocation);
  (fold.byId.get(parent_id) ?? turn).agents.push(invocation);
}

function recordHandoff(fold, { agent_id, payload }) {
  const from = fold.byId.get(agent_id);
  if (!from) return;
  from.to = payload.to_agent_id;
  fold.handoffSources.set(payload.to_agent_id, agent_id);
}

function endAgent(fold, { agent_id, seq, payload }) {
  const ended = fold.byId.get(agent_id);
  if (ended) ended.ended ??= { reason: payload.stop_reason, seq };
}

const REDUCERS = { __proto__: null, "agent.start": startAgent, "agent.handoff": recordHandoff, "agent.end": endAgent };

/** Return the label and the class of an invocation's state. `open` are the open agents of a snapshot. */
export function invocationStatus({ agent_id, ended }, open) {
  if (ended) return END_LABELS[ended.reason] ?? [ended.reason, "bad"];
  return isWaiting(open, agent_id) ? ["waiting", "wait"] : ["running", "work"];
}

const isWaiting = (open, id) =>
  open.some(({ agent_id, waits, agents }) => (agent_id === id && waits) || isWaiting(agents, id));
