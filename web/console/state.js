/** `<tl-state>` */

import { html } from "lit";

import { SessionElement } from "./element.js";

export class StateAt extends SessionElement {
  render() {
    return html`<p>state</p>`;
  }
}

customElements.define("tl-state", StateAt);
