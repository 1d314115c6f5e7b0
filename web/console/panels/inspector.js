/** `<tl-inspector>`: the panels beside the chat, one at a time. */

import { html } from "lit";

import { currentRoute, navigate } from "../app/router.js";
import { RoutedElement } from "../ui/base-element.js";

const PANELS = [
  ["guide", "Guide", (session) => html`<tl-guide .session=${session}></tl-guide>`],
  ["events", "Events", (session) => html`<tl-events .session=${session}></tl-events>`],
  ["timeline", "Timeline", (session) => html`<tl-waterfall .session=${session}></tl-waterfall>`],
  ["agents", "Agents", (session) => html`<tl-agents .session=${session}></tl-agents>`],
  ["state", "State", (session) => html`<tl-state .session=${session}></tl-state>`],
  ["documents", "Documents", (session) => html`<tl-documents .session=${session}></tl-documents>`],
  ["usage", "Usage", (session) => html`<tl-usage .session=${session}></tl-usage>`],
];
const KEYS = { ArrowRight: 1, ArrowLeft: -1 };

export class Inspector extends RoutedElement {
  static properties = { screen: { attribute: false } };
  #visibleTab = null; // the tab that was scrolled into view

  /** The index of the route's panel; by default the guide if there is one, else the events. */
  get #panel() {
    const wanted = PANELS.findIndex(([name]) => name === currentRoute().panel);
    if (wanted >= 0) return wanted;
    return this.session.app.guide ? 0 : 1;
  }

  #show(at) {
    navigate({ ...currentRoute(), panel: PANELS[at][0] }, { replace: true });
  }

  async #onKeyDown(event) {
    const step = KEYS[event.key];
    if (!step) return;
    event.preventDefault();
    this.#show((this.#panel + step + PANELS.length) % PANELS.length);
    await this.updateComplete;
    this.querySelector("[role=tab][aria-selected=true]").focus();
  }

  updated(changed) {
    if (this.#visibleTab === this.#panel && !changed.has("screen")) return;
    this.#visibleTab = this.#panel;
    this.querySelector("[aria-selected=true]").scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  render() {
    const at = this.#panel;
    const [name, , draw] = PANELS[at];
    if (!this.session.isCatchingUp) import("./lazy-panels.js"); // the chat is drawn first
    return html`<section class="inspector" aria-label="Inspector">
      <div role="tablist" aria-label="Panels" @keydown=${this.#onKeyDown}>${PANELS.map(
        ([each, title], index) => html`
        <button role="tab" id="tab-${each}" aria-selected=${index === at} aria-controls="panel"
          tabindex=${index === at ? 0 : -1} @click=${() => this.#show(index)}>${title}</button>`,
      )}
      </div>
      <div role="tabpanel" id="panel" class="panel" aria-labelledby="tab-${name}" tabindex="0">${draw(this.session)}</div>
    </section>`;
  }
}

customElements.define("tl-inspector", Inspector);
