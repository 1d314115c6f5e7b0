/** `<tl-home>`: the page without a session: invitations, and the applications to start. */

import { html } from "lit";

import { ConsoleElement } from "../ui/base-element.js";
import "./focus-recovery.js";
import "./invitations.js";

export class Home extends ConsoleElement {
  static properties = { apps: { attribute: false }, mayCreate: { attribute: false }, client: { attribute: false } };

  render() {
    if (!this.mayCreate) {
      return html`<div class="home"><tl-invitations .client=${this.client}></tl-invitations>
        <p class="blank">Guests take part in the session that they were invited to. Open the link of your
        invitation.</p></div>`;
    }
    return html`<div class="home">
      <tl-invitations .client=${this.client}></tl-invitations>
      <h2>What would you like to see?</h2>
      <div class="cards">${this.apps.map((app) => this.#drawCard(app))}</div>
    </div>`;
  }

  #drawCard(app) {
    const start = () => this.dispatchEvent(new CustomEvent("start", { detail: app.name }));
    return html`<article class="card">
      <h3>${app.title || app.name}</h3>
      <p>${firstSentence(app.guide)}</p>
      <button class="strong" @click=${start}>Start<span class="unseen"> ${app.title || app.name}</span></button>
    </article>`;
  }
}

/** Return the first paragraph of a guide that is no heading, list, quote, table or code. */
function firstSentence(guide) {
  const paragraphs = guide.split(/\n\s*\n/).map((text) => text.trim());
  return (paragraphs.find((text) => text && !/^[#>*\-|`\d]/.test(text)) ?? "").replace(/[*_`]/g, "");
}

customElements.define("tl-home", Home);
