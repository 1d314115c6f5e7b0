/** `<tl-view-button>`: a button of a view. It works once, unless the node says `repeat`. */

import { html } from "lit";

import { ActionPart } from "./action-part.js";
import { formErrors } from "./errors.js";

const LOOKS = { primary: "strong", secondary: "", danger: "danger" };

export class ViewButton extends ActionPart {
  #click() {
    this.act({ kind: "button.click", button_id: this.node.id }, formErrors);
  }

  render() {
    const { id, label, style = "secondary" } = this.node;
    const button = html`<button type="button" class=${LOOKS[style]} data-button=${id}
      ?disabled=${this.isUsed || this.isBusy} @click=${() => this.#click()}>${label}</button>`;
    return html`<div class="doing">${this.renderAction(button, label)} ${this.renderStatus()}</div>${this.renderError()}`;
  }
}

customElements.define("tl-view-button", ViewButton);
