/** `<tl-chat>` */

import { html } from "lit";

import { SessionElement } from "./element.js";

export class Chat extends SessionElement {
  render() {
    return html`<p>chat</p>`;
  }
}

customElements.define("tl-chat", Chat);
