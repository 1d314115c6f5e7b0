/**
 * `<tl-view>`: a view of an agent: texts, forms, tables, buttons (docs/protocol.md, section 3.3).
 *
 * Only nodes of the protocol are drawn, all words as text; an invalid tree is refused as a whole. A surface of A2UI is
 * drawn by `tl-surface`, which is loaded with the first one; a view of another kind is shown as JSON. A replaced or
 * closed view shows its actions, with the original folded below. The element updates when its view changes, not with every
 * event, so that it does not disturb typing.
 */

import { html, nothing } from "lit";
import { keyed } from "lit/directives/keyed.js";

import { A2UI_KIND } from "../../client/views/a2ui.js";
import { validateView, walkView } from "../../client/views/schema.js";
import { NODES_KIND, OpenViews, viewKey } from "../../client/views/views.js";
import { removeDrafts } from "../app/storage.js";
import { submittedValues } from "../store/labels.js";
import { SessionElement } from "../ui/base-element.js";
import { drawFacts } from "../ui/fact-list.js";
import "../ui/json-tree.js";
import { formatShortTime, utcTooltip } from "../ui/time-format.js";
import "./button.js";
import { drawClosedView } from "./closed-view.js";
import "./form.js";
import { headingLevels } from "./headings.js";
import { Submissions } from "./submissions.js";
import "./table.js";
import { viewTextsOf } from "./texts.js";
import "./views.css";

const MAX_ACTIONS_SHOWN = 5;
const CHAT_LEVEL = 2; // of the heading above the chat

export class ViewElement extends SessionElement {
  static properties = { entry: { attribute: false }, unfolded: { state: true } };
  #stamp = "";
  #error = null;
  #levels = new Map();
  #name = "";

  constructor() {
    super();
    this.unfolded = false;
  }

  get texts() {
    return viewTextsOf(this.session);
  }

  /** "replaced", "closed", or null while the view is open. Too many open views, or the end of the session, close it. */
  get over() {
    const { log } = this.session;
    const { over, seq, event_id, channel, view } = this.entry;
    // a view of an unknown kind is in no fold: it is open until another one replaces it
    if (over) return over;
    if (this.session.hasEnded) return "closed";
    if (this.#error || log.last < seq || !KNOWN_KINDS.has(view.kind)) return null;
    return log.fold(OpenViews).open.get(viewKey(channel, view.view_id))?.event_id === event_id ? null : "closed";
  }

  shouldUpdate(changed) {
    if (changed.has("entry") || changed.has("session")) this.#analyze();
    const { version } = this.session.log.fold(Submissions).forView(this.entry.view.view_id, this.entry.channel);
    const { event_id, updates = [], actions = [] } = this.entry;
    const stamp = [event_id, this.over, version, updates.length, actions.length].join(" ");
    if (stamp === this.#stamp && !changed.has("session") && !changed.has("unfolded")) return false;
    this.#stamp = stamp;
    return true;
  }

  /** Compute what never changes about a view. */
  #analyze() {
    const { kind, tree, title } = this.entry.view;
    const isTree = kind === NODES_KIND;
    this.#error = isTree ? validateView(tree) : null;
    const isDrawn = isTree && !this.#error;
    this.#levels = isDrawn ? headingLevels(tree, CHAT_LEVEL, title) : new Map([[null, CHAT_LEVEL + 1]]);
    this.#name = title || (isDrawn ? firstTitle(tree) : null) || this.texts.view;
  }

  updated() {
    if (this.over) removeDrafts(this.session.id, this.entry.event_id);
  }

  render() {
    const { view, event_id } = this.entry;
    const { over } = this;
    if (over) return this.#drawClosed(over);
    if (this.#error) return this.#drawInvalid();
    return html`<div class="sheet view" role="group" aria-label=${this.#name} data-state="open"
      data-view=${view.view_id}>
      ${view.title ? this.#drawHeading(null, view.title) : nothing}
      ${keyed(event_id, this.#drawContent(view))}
      ${this.#drawActions()}
    </div>`;
  }

  #drawContent({ kind, tree }) {
    if (kind === NODES_KIND) return this.#drawNode(tree);
    if (kind !== A2UI_KIND) return html`<p class="label">${kind}</p><tl-json .value=${tree}></tl-json>`;
    import("../a2ui/surface.js");
    return html`<tl-surface .session=${this.session} .entry=${this.entry} .stamp=${this.#stamp}></tl-surface>`;
  }

  /** Draw a closed view: its actions, and the original on demand. */
  #drawClosed(over) {
    const {
      view: { kind, tree },
      actions,
    } = this.entry;
    const drawOriginal = () =>
      kind === NODES_KIND
        ? drawClosedView(tree, actions, this.texts)
        : html`<p class="label">${kind}</p><tl-json .value=${tree}></tl-json>`;
    const values = actions.length > 0 ? submittedValues(actions.at(-1).action, tree) : [];
    return html`<div class="sheet over" data-state=${over}>
      <p><b>${this.#name}</b> ${actions.length > 0 ? nothing : this.texts[over]}</p>
      ${this.#drawActions()}
      ${values.length > 0 ? drawFacts(values, this.texts.values) : nothing}
      ${
        this.#error
          ? nothing
          : html`<details @toggle=${({ target }) => (this.unfolded = target.open)}>
        <summary>${this.texts.originalView}</summary>${this.unfolded ? drawOriginal() : nothing}</details>`
      }
    </div>`;
  }

  #drawActions() {
    const {
      view: { tree },
      actions,
    } = this.entry;
    return actions.slice(-MAX_ACTIONS_SHOWN).map(
      ({ actor, ts, action }) => html`<p class="done">
      ${this.texts.action(this.session.log.displayName(actor), action, tree)},
      <time datetime=${ts} title=${utcTooltip(ts)}>${formatShortTime(ts, { locale: this.session.locale })}</time></p>`,
    );
  }

  #drawInvalid() {
    const { message, path } = this.#error;
    return html`<div class="sheet view" data-state="refused">
      <p class="wrong">${this.texts.invalidView}</p>
      <p class="help">Its part <code>${path}</code> is not what the protocol allows: ${message}.</p>
    </div>`;
  }

  #drawNode(node) {
    return RENDERERS[node.type].call(this, node);
  }

  section(node) {
    return html`<div class="section">
      ${node.title ? this.#drawHeading(node, node.title) : nothing}
      ${node.children.map((child) => this.#drawNode(child))}
    </div>`;
  }

  text(node) {
    const { text, style = "body" } = node;
    return this.#levels.has(node) ? this.#drawHeading(node, text) : html`<p class="words ${style}">${text}</p>`;
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

  #drawHeading(node, words) {
    return HEADINGS[this.#levels.get(node)](words);
  }
}

function firstTitle(tree) {
  for (const { part } of walkView(tree)) if (part.title) return part.title;
  return null;
}

const HEADINGS = {
  3: (words) => html`<h3>${words}</h3>`,
  4: (words) => html`<h4>${words}</h4>`,
  5: (words) => html`<h5>${words}</h5>`,
  6: (words) => html`<h6>${words}</h6>`,
};

const KNOWN_KINDS = new Set([NODES_KIND, A2UI_KIND]);

const { prototype: of } = ViewElement;
const RENDERERS = {
  screen: of.section,
  section: of.section,
  text: of.text,
  form: of.form,
  table_editor: of.table,
  button: of.button,
};

customElements.define("tl-view", ViewElement);
