/** `<tl-totals>`: the tokens and the cost of the session so far, in the bar at the top. */

import { html, nothing } from "lit";

import { SessionElement } from "../ui/base-element.js";
import { formatCost, formatCount } from "../ui/format.js";

export class UsageTotals extends SessionElement {
  render() {
    const { session } = this.session.snapshot.usage;
    const tokens = session ? session.input_tokens + session.output_tokens : 0;
    if (tokens === 0) return nothing;
    return html`<span class="totals">${formatCount(tokens)} tokens, ${formatCost(session)}</span>`;
  }
}

customElements.define("tl-totals", UsageTotals);
