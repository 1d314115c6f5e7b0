/** `<tl-totals>` */

import { html } from "lit";

import { SessionElement } from "./element.js";

export class Totals extends SessionElement {
  render() {
    return html`<p>totals</p>`;
  }
}

customElements.define("tl-totals", Totals);
