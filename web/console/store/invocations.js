/**
 * All invocations of a session, ended ones too: a fold over durable events, by turn and nested by who called
 * whom. Who handoffSources over stands beside the one it took over from. What they spent is in the client's `Meters`.
 */

import { oneLine } from "./one-line.js";

const MAX_TITLE_CHARS = 80; // characters of what a turn began with

/** How an agent ended, in words, and whether that is good. */
export const END_LABELS = {
  end_turn: ["done", "good"],
  stop_sequence: ["done", "good"],
  handoff: ["handed over", "good"],
  max_steps: ["out of steps", "busy"],
  max_tokens: ["out of tokens", "busy"],
  context_window: ["context full", "bad"],
  refusal: ["refused", "bad"],
  cancelled: ["stopped", "busy"],
  timeout: ["took too long", "bad"],
  error: ["failed", "bad"],
};

export class Invocations {
  turns = new Map(); // turn -> { turn, number, seq, words, agents }
  byId = new Map();
  handoffSources = new Map(); // agent id -> from whom it handoffSources over

  /** Take one event into account. */
  apply(event) {
    const turn = this.#turn(event);
    REDUCERS[event.type]?.(this, event, turn);
  }

  /** The turn of an event; agents that are in none are in one without a name. */
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

const title = (text) => oneLine(String(text), MAX_TITLE_CHARS);

/** What a turn began with. */
function turnTitle({ type, payload }) {
  const told = { "ui.message": payload.text, "ui.command": payload.command?.kind, "ui.action": payload.action?.kind };
  return title(told[type] ?? type);
}

/** What an agent was asked by another one. An agent that answers a person has the words of its turn, and no others. */
export const promptSubject = ({ via, prompt }) => (via === "prompt" ? "" : title(prompt ?? ""));

function startAgent(fold, event, turn) {
  const { agent_id, seq, channel = null, payload } = event;
  if (agent_id === undefined || fold.byId.has(agent_id)) return;
  const { name, via, model = null, parent_id = null, resumes = null } = payload;
  const from = fold.handoffSources.get(agent_id) ?? null;
  const subject = promptSubject(payload);
  const made = { agent_id, name, subject, via, model, resumes, channel, seq, ended: null, from, to: null, agents: [] };
  fold.byId.set(agent_id, made);
  (fold.byId.get(parent_id) ?? turn).agents.push(made);
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

/** What an invocation does: the word for it, and its look. `tree` is the client's. */
export function invocationStatus({ agent_id, ended }, tree) {
  if (ended) return END_LABELS[ended.reason] ?? [ended.reason, "bad"];
  return tree.isWaiting(agent_id) ? ["waiting", "busy"] : ["running", "good"];
}
