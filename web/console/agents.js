/** `<tl-agents>` */

import { html } from "lit";

import { SessionElement } from "./element.js";

export class Agents extends SessionElement {
  render() {
    return html`<p>agents</p>`;
  }
}

customElements.define("tl-agents", Agents);
