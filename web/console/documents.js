/** `<tl-documents>` */

import { html } from "lit";

import { SessionElement } from "./element.js";

export class DocumentList extends SessionElement {
  render() {
    return html`<p>documents</p>`;
  }
}

customElements.define("tl-documents", DocumentList);
