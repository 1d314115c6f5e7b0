/**
 * All invocations of a session, ended ones too: a fold over durable events, by turn and nested by who called
 * whom. Who takes over stands beside the one it took over from. What they spent is in the client's `Meters`.
 */

const WORDS = 80; // characters of what a turn began with

/** How an agent ended, in words, and whether that is good. */
export const ENDS = {
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
  takes = new Map(); // agent id -> from whom it takes over

  /** Take one event into account. */
  apply(event) {
    const turn = this.#turn(event);
    STEPS[event.type]?.(this, event, turn);
  }

  /** The turn of an event; agents that are in none are in one without a name. */
  #turn(event) {
    const { trace_id = "", seq, type } = event;
    if (!trace_id && type !== "agent.start") return null;
    if (!this.turns.has(trace_id)) {
      const number = this.turns.size + 1;
      this.turns.set(trace_id, { turn: trace_id, number, seq, words: beginning(event), agents: [] });
    }
    return this.turns.get(trace_id);
  }
}

/** The first words of a text, on one line. */
function firstWords(text) {
  const letters = [
    ...String(text)
      .slice(0, 10 * WORDS)
      .replace(/\s+/g, " ")
      .trim(),
  ];
  return letters.length > WORDS ? `${letters.slice(0, WORDS - 1).join("")}…` : letters.join("");
}

/** What a turn began with. */
function beginning({ type, payload }) {
  const told = { "ui.message": payload.text, "ui.command": payload.command?.kind, "ui.action": payload.action?.kind };
  return firstWords(told[type] ?? type);
}

/** What an agent was asked by another one. An agent that answers a person has the words of its turn, and no others. */
export const subjectOf = ({ via, prompt }) => (via === "prompt" ? "" : firstWords(prompt ?? ""));

function start(fold, event, turn) {
  const { agent_id, seq, channel = null, payload } = event;
  if (agent_id === undefined || fold.byId.has(agent_id)) return;
  const { name, via, model = null, parent_id = null, resumes = null } = payload;
  const from = fold.takes.get(agent_id) ?? null;
  const subject = subjectOf(payload);
  const made = { agent_id, name, subject, via, model, resumes, channel, seq, ended: null, from, to: null, agents: [] };
  fold.byId.set(agent_id, made);
  (fold.byId.get(parent_id) ?? turn).agents.push(made);
}

function handoff(fold, { agent_id, payload }) {
  const from = fold.byId.get(agent_id);
  if (!from) return;
  from.to = payload.to_agent_id;
  fold.takes.set(payload.to_agent_id, agent_id);
}

function end(fold, { agent_id, seq, payload }) {
  const ended = fold.byId.get(agent_id);
  if (ended) ended.ended ??= { reason: payload.stop_reason, seq };
}

const STEPS = { __proto__: null, "agent.start": start, "agent.handoff": handoff, "agent.end": end };

/** What an invocation does: the word for it, and its look. `tree` is the client's. */
export function standing({ agent_id, ended }, tree) {
  if (ended) return ENDS[ended.reason] ?? [ended.reason, "bad"];
  return tree.isWaiting(agent_id) ? ["waiting", "busy"] : ["running", "good"];
}
