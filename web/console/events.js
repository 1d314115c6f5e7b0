/** `<tl-events>` */

import { html } from "lit";

import { SessionElement } from "./element.js";

export class Events extends SessionElement {
  render() {
    return html`<p>events</p>`;
  }
}

customElements.define("tl-events", Events);
