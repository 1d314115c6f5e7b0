/** `<tl-usage>` */

import { html } from "lit";

import { SessionElement } from "./element.js";

export class Usage extends SessionElement {
  render() {
    return html`<p>usage</p>`;
  }
}

customElements.define("tl-usage", Usage);
