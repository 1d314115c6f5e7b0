/** `<tl-waterfall>` */

import { html } from "lit";

import { SessionElement } from "./element.js";

export class Waterfall extends SessionElement {
  render() {
    return html`<p>waterfall</p>`;
  }
}

customElements.define("tl-waterfall", Waterfall);
