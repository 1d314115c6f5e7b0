/** `<tl-totals>`: what the session has taken so far, in the bar at the top. */

import { html, nothing } from "lit";

import { SessionElement } from "../ui/base-element.js";
import { cost, formatCount } from "../ui/format.js";
import { Spent } from "../store/spent.js";

export class Totals extends SessionElement {
  render() {
    const spent = this.session.record.fold(Spent);
    if (!spent.tokens) return nothing;
    return html`<span class="totals">${formatCount(spent.tokens)} tokens, ${cost(spent)}</span>`;
  }
}

customElements.define("tl-totals", Totals);
