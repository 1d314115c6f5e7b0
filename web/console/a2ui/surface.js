/**
 * `<tl-surface>`: a surface of A2UI v0.9 in the official renderer (docs/protocol.md, section 3.7). This module is a
 * chunk of its own: a browser loads it with the first such view.
 *
 * The renderer gets the folded surface first and the messages of later events as they come, so that an update does
 * not disturb what a person has typed. Messages that do not fit are ignored, as the server does. `openUrl` opens
 * nothing: it shows a link, because an expression may call it when nobody has clicked. `regex` runs bounded patterns.
 */

import { basicCatalog } from "@a2ui/lit/v0_9";
import { Catalog, MessageProcessor, createFunctionImplementation } from "@a2ui/web_core/v0_9";
import { OpenUrlApi, RegexApi } from "@a2ui/web_core/v0_9/basic_catalog";

import { html, nothing } from "lit";

import { SurfaceError, applyMessages, snapshotMessages } from "../../client/views/a2ui.js";
import { OpenViews } from "../../client/views/views.js";
import { allowedLink, linkHost } from "../markdown/url-policy.js";
import { ConsoleElement } from "../ui/base-element.js";
import { responseProblems } from "../views/errors.js";
import { OWN_COMPONENTS } from "./components.js";
import { testPattern } from "./patterns.js";
import "./surface.css";

export class SurfaceElement extends ConsoleElement {
  static properties = {
    session: { attribute: false },
    entry: { attribute: false },
    stamp: { attribute: false },
    sending: { state: true },
    problem: { state: true },
    link: { state: true },
  };
  #processor = null;
  #surface = null; // the fold
  #applied = 0; // of `entry.updates`
  #lastSeq = -1; // of the last action: the next one waits until the log has it

  constructor() {
    super();
    Object.assign(this, { sending: false, problem: null, link: null });
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.#processor?.model.dispose();
    this.#processor = null;
  }

  connectedCallback() {
    super.connectedCallback();
    this.requestUpdate();
  }

  willUpdate(changed) {
    const isOther = changed.has("entry") && changed.get("entry")?.event_id !== this.entry.event_id;
    if (isOther || !this.#processor || this.entry.updates.length < this.#applied) this.#begin();
    else for (const tree of this.entry.updates.slice(this.#applied)) this.#update(tree);
    this.#applied = this.entry.updates.length;
  }

  /** Draw the surface anew, as all its messages leave it. */
  #begin() {
    this.#processor?.model.dispose();
    this.#processor = new MessageProcessor([this.#buildCatalog()], (action) => this.#act(action));
    this.#surface = null;
    for (const tree of [this.entry.view.tree, ...this.entry.updates]) this.#fold(tree);
    if (this.#surface) this.#show(snapshotMessages(this.#surface));
  }

  #update(tree) {
    if (this.#fold(tree)) this.#show(tree.messages);
  }

  /** Whether the messages fit. */
  #fold(tree) {
    try {
      this.#surface = applyMessages(this.#surface, this.entry.view.view_id, tree);
      return this.#surface !== null;
    } catch (error) {
      if (!(error instanceof SurfaceError)) throw error;
      return false;
    }
  }

  #show(messages) {
    try {
      // the renderer changes the values that it gets
      this.#processor.processMessages(structuredClone(messages));
    } catch (error) {
      this.problem = `The renderer cannot show this: ${error.message}`;
    }
  }

  #buildCatalog() {
    const own = new Map(OWN_COMPONENTS.map((component) => [component.name, component]));
    const components = [...basicCatalog.components.values()].map((component) => own.get(component.name) ?? component);
    const openUrl = createFunctionImplementation(OpenUrlApi, ({ url }) => {
      this.link = allowedLink(url);
    });
    const regex = createFunctionImplementation(RegexApi, ({ pattern, value }) => testPattern(pattern, value));
    // in a catalog the last function of a name counts
    return new Catalog(basicCatalog.id, components, [...basicCatalog.functions.values(), openUrl, regex]);
  }

  get isBusy() {
    return this.sending || this.session.log.last < this.#lastSeq;
  }

  async #act({ name, sourceComponentId, context }) {
    if (this.isBusy) return;
    const { client, id, log } = this.session;
    const {
      channel,
      event_id,
      seq,
      view: { view_id },
    } = this.entry;
    const action = { kind: "a2ui.action", name, component_id: sourceComponentId, context: toJson(context) };
    if (this.#surface.creation.sendDataModel === true) {
      action.data_model = toJson(this.#processor.model.getSurface(view_id).dataModel.get("/"));
    }
    // without the whole history the server decides
    const isKnown = log.last >= seq;
    const problems = isKnown ? log.fold(OpenViews).validateAction({ view_id, shown: event_id, action }, channel) : [];
    if (problems.length > 0) {
      this.problem = `Not sent: ${problems[0].message}`;
      return;
    }
    Object.assign(this, { sending: true, problem: null });
    try {
      this.#lastSeq = await client.submitView(id, view_id, action, { shown: event_id });
    } catch (error) {
      this.problem = responseProblems(error)[0].message;
    } finally {
      this.sending = false;
    }
  }

  render() {
    const surface = this.#processor.model.getSurface(this.entry.view.view_id);
    return html`<div class="surface" ?inert=${this.sending}>
        ${surface ? html`<a2ui-surface .surface=${surface}></a2ui-surface>` : nothing}
      </div>
      ${this.link ? html`<p>Open <a href=${this.link} target="_blank" rel="noopener noreferrer">${linkHost(this.link)}</a>?</p>` : nothing}
      ${this.problem ? html`<p class="wrong" role="alert">${this.problem}</p>` : nothing}
      <span class="told" role="status">${this.sending ? "Sending" : ""}</span>`;
  }
}

/** Return what JSON keeps of a value. */
const toJson = (value) => JSON.parse(JSON.stringify(value ?? null));

customElements.define("tl-surface", SurfaceElement);
