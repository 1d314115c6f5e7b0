/**
 * `<tl-view>`: a view that an agent shows: texts, forms, tables, buttons (docs/protocol.md, 3.3).
 *
 * Only nodes of the protocol are drawn, all words as text; a tree with a flaw says so and offers nothing. A view that
 * was replaced or closed says what was done on it, with what was shown folded under it. It draws again when something happens to it, not whenever something comes:
 * what is being typed is left alone.
 */

import { html, nothing } from "lit";
import { keyed } from "lit/directives/keyed.js";

import { validateView, walkView } from "../../client/views/schema.js";
import { OpenViews, viewKey } from "../../client/views/views.js";
import { forget } from "../app/drafts.js";
import { SessionElement } from "../ui/base-element.js";
import { drawFacts } from "../ui/fact-list.js";
import "./button.js";
import "./form.js";
import { levelsOf } from "./headings.js";
import { drawPast } from "./closed-view.js";
import { whenOf, zoneOf } from "../ui/time-format.js";
import { Sent } from "./submissions.js";
import "./table.js";
import { actionOf, valuesOf } from "../store/labels.js";
import "./views.css";

const OVER = { replaced: "Replaced by a newer one", closed: "Closed" };
const TOLD = 5; // the last things that were done
const ABOVE = 2; // the level of the heading that a chat stands under

export class View extends SessionElement {
  static properties = { entry: { attribute: false }, unfolded: { state: true } };
  #stamp = "";
  #flaw = null;
  #levels = new Map();
  #name = "";

  constructor() {
    super();
    this.unfolded = false;
  }

  /** Replaced, closed, or null while it is open. A view can be closed because there are too many. */
  get over() {
    const { record } = this.session;
    const { over, seq, event_id, channel, view } = this.entry;
    if (over || this.#flaw || record.last < seq) return over;
    return record.fold(OpenViews).open.get(viewKey(channel, view.view_id))?.event_id === event_id ? null : "closed";
  }

  shouldUpdate(changed) {
    if (changed.has("entry") || changed.has("session")) this.#look();
    const { version } = this.session.record.fold(Sent).on(this.entry.view.view_id, this.entry.channel);
    const stamp = [this.entry.event_id, this.over, version].join(" ");
    if (stamp === this.#stamp && !changed.has("session") && !changed.has("unfolded")) return false;
    this.#stamp = stamp;
    return true;
  }

  /** What never changes about a view, once. */
  #look() {
    const { tree, title } = this.entry.view;
    this.#flaw = validateView(tree);
    this.#levels = this.#flaw ? new Map() : levelsOf(tree, ABOVE, title);
    this.#name = title || (this.#flaw ? null : titleOf(tree)) || "View";
  }

  updated() {
    if (this.over) forget(this.session.id, this.entry.event_id);
  }

  render() {
    const { view, event_id } = this.entry;
    const { over } = this;
    if (over) return this.#over(over);
    if (this.#flaw) return this.#refused();
    return html`<div class="sheet view" role="group" aria-label=${this.#name} data-state="open"
      data-view=${view.view_id}>
      ${view.title ? this.#heading(null, view.title) : nothing}
      ${keyed(event_id, this.#draw(view.tree))}
      ${this.#told()}
    </div>`;
  }

  /** What is left of a view: what was done on it, and on demand what it showed. */
  #over(over) {
    const {
      view: { tree },
      actions,
    } = this.entry;
    const values = actions.length > 0 ? valuesOf(actions.at(-1).action, tree) : [];
    return html`<div class="sheet over" data-state=${over}>
      <p><b>${this.#name}</b> ${actions.length > 0 ? nothing : OVER[over]}</p>
      ${this.#told()}
      ${values.length > 0 ? drawFacts(values) : nothing}
      ${
        this.#flaw
          ? nothing
          : html`<details @toggle=${({ target }) => (this.unfolded = target.open)}>
        <summary>What was shown</summary>${this.unfolded ? drawPast(tree, actions) : nothing}</details>`
      }
    </div>`;
  }

  /** Who did what, and when. */
  #told() {
    const {
      view: { tree },
      actions,
    } = this.entry;
    return actions.slice(-TOLD).map(
      ({ actor, ts, action }) => html`<p class="done">
      ${actionOf(this.session.record.nameOf(actor), action, tree)},
      <time datetime=${ts} title=${zoneOf(ts)}>${whenOf(ts)}</time></p>`,
    );
  }

  #refused() {
    const { message, path } = this.#flaw;
    return html`<div class="sheet view" data-state="refused">
      <p class="wrong">This view cannot be shown.</p>
      <p class="help">Its part <code>${path}</code> is not what the protocol allows: ${message}.</p>
    </div>`;
  }

  #draw(node) {
    return NODES[node.type].call(this, node);
  }

  section(node) {
    return html`<div class="section">
      ${node.title ? this.#heading(node, node.title) : nothing}
      ${node.children.map((child) => this.#draw(child))}
    </div>`;
  }

  text(node) {
    const { text, style = "body" } = node;
    return this.#levels.has(node) ? this.#heading(node, text) : html`<p class="words ${style}">${text}</p>`;
  }

  form(node) {
    return html`<tl-view-form .session=${this.session} .entry=${this.entry} .node=${node}
      .stamp=${this.#stamp}></tl-view-form>`;
  }

  table(node) {
    return html`<tl-view-table .session=${this.session} .entry=${this.entry} .node=${node}
      .stamp=${this.#stamp}></tl-view-table>`;
  }

  button(node) {
    return html`<tl-view-button .session=${this.session} .entry=${this.entry} .node=${node}
      .stamp=${this.#stamp}></tl-view-button>`;
  }

  #heading(node, words) {
    return HEADINGS[this.#levels.get(node)](words);
  }
}

/** The first title in a tree. */
function titleOf(tree) {
  for (const { part } of walkView(tree)) if (part.title) return part.title;
  return null;
}

const HEADINGS = {
  3: (words) => html`<h3>${words}</h3>`,
  4: (words) => html`<h4>${words}</h4>`,
  5: (words) => html`<h5>${words}</h5>`,
  6: (words) => html`<h6>${words}</h6>`,
};

const { prototype: of } = View;
const NODES = {
  screen: of.section,
  section: of.section,
  text: of.text,
  form: of.form,
  table_editor: of.table,
  button: of.button,
};

customElements.define("tl-view", View);
