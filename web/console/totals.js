/** `<tl-totals>`: what the session has taken so far, in the bar at the top. */

import { html } from "lit";

import { Meters } from "../client/meters.js";
import { SessionElement } from "./element.js";
import { cost, count } from "./numbers.js";

export class Totals extends SessionElement {
  render() {
    const { session } = this.session.record.fold(Meters);
    if (!session?.completions) return html``;
    const tokens = count(session.input_tokens + session.output_tokens);
    return html`<span class="totals">${tokens} tokens, ${cost(session)}</span>`;
  }
}

customElements.define("tl-totals", Totals);
