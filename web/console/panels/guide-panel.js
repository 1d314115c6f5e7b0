/** `<tl-guide>`: the application's guide and its suggested messages. A suggestion goes into the composer, unsent. */

import { html, nothing } from "lit";

import { renderMarkdown } from "../markdown/render.js";
import { SessionElement } from "../ui/base-element.js";
import "./panels.css";

export class GuidePanel extends SessionElement {
  #rendered = { guide: "", nodes: null };

  /** Return the rendered guide; it is rendered once. */
  #nodes(guide) {
    if (this.#rendered.guide !== guide) this.#rendered = { guide, nodes: renderMarkdown(guide) };
    return this.#rendered.nodes;
  }

  #suggest(text) {
    this.dispatchEvent(new CustomEvent("suggest", { detail: text, bubbles: true }));
  }

  render() {
    const { name, title, guide, tries } = this.session.app;
    return html`<div class="pad guide">
      <h2>${title || name}</h2>
      ${
        tries.length
          ? html`<h3>Try</h3>
        <ul class="tries">${tries.map(
          (text) => html`<li>
          <button @click=${() => this.#suggest(text)}>${text}</button></li>`,
        )}</ul>`
          : nothing
      }
      ${guide ? this.#nodes(guide) : html`<p class="soft">This application has no guide.</p>`}
    </div>`;
  }
}

customElements.define("tl-guide", GuidePanel);
