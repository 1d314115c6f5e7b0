/**
 * What a session has spent so far: the sums of the client's `Meters` and nothing else, so that the page shows
 * them before anybody has loaded the rest.
 */

import { addCosts, addCounts } from "../../client/shared/rounding.js";

export class Spent {
  tokens = 0;
  cost_usd = 0;
  completions = 0;
  unpriced = 0;
  #silent = new Set(); // open agents that have reported no completion: their end says what they took

  /** Take one event into account. */
  apply({ type, agent_id, payload }) {
    if (type === "agent.start") this.#silent.add(agent_id);
    else if (type === "agent.usage") {
      this.#silent.delete(agent_id);
      this.#add(payload, 1);
    } else if (type === "agent.end" && this.#silent.delete(agent_id) && payload.usage) {
      this.#add(payload, Math.max(1, payload.steps ?? 0));
    }
  }

  #add({ usage, cost }, completions) {
    this.completions = addCounts(this.completions, completions);
    this.tokens = addCounts(this.tokens, usage.input_tokens, usage.output_tokens);
    if (cost == null) this.unpriced = addCounts(this.unpriced, completions);
    else this.cost_usd = addCosts(this.cost_usd, cost.total_cost);
  }
}
