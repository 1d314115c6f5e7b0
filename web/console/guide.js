/** `<tl-guide>` */

import { html } from "lit";

import { SessionElement } from "./element.js";

export class Guide extends SessionElement {
  render() {
    return html`<p>guide</p>`;
  }
}

customElements.define("tl-guide", Guide);
