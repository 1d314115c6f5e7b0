/**
 * `<tl-documents>`: the files of the session, the session as a file, and folded below them the documents that the
 * log becomes, as a database beside the page would keep them. Their contents are shown as text.
 */

import { html, nothing } from "lit";
import { guard } from "lit/directives/guard.js";

import { SessionElement } from "../ui/base-element.js";
import { toEvent } from "../app/event-link.js";
import { fileName, markdown } from "../store/markdown-export.js";
import "./file-list.js";
import { Library, SHELVES, holds, titleOf, wordsOf } from "../store/document-index.js";
import { remember, remembered } from "../app/settings.js";
import { formatCount, size } from "../ui/format.js";
import { save } from "../ui/download.js";
import { momentOf, zoneOf } from "../ui/time-format.js";
import "./panels.css";

const MORE = 50; // documents of a category that are shown at first, and that come with every step

export class DocumentList extends SessionElement {
  static properties = { query: { state: true }, open: { state: true }, shown: { state: true } };

  #unfolded = new Set(); // categories that a person has opened

  constructor() {
    super();
    Object.assign(this, { query: remembered("documents", ""), open: remembered("document", ""), shown: {} });
  }

  render() {
    const library = this.session.record.fold(Library);
    const chosen = [library, library.version, this.query, this.open, this.shown];
    return html`<div class="pad documents">
      <tl-files .session=${this.session}></tl-files>
      <section class="export" aria-labelledby="export-title">
        <h2 id="export-title">Export</h2>
        <div class="row">
          <button @click=${this.#lines}>JSONL</button>
          <button @click=${this.#words}>Markdown</button>
          <span class="soft grow">The whole log, or the conversation as it is shown.</span>
        </div>
      </section>
      <section class="stored" aria-labelledby="stored-title">
        <h2 id="stored-title">Stored documents</h2>
        <label class="find">Find <input type="search" .value=${this.query} @input=${this.#find}></label>
        ${guard(chosen, () => this.#shelves(library))}
      </section>
    </div>`;
  }

  #fold(category, { target }) {
    this.#unfolded[target.open ? "add" : "delete"](category);
  }

  #find({ target }) {
    this.query = target.value;
    this.shown = {};
    remember("documents", this.query);
  }

  #choose(id) {
    this.open = this.open === id ? "" : id;
    remember("document", this.open);
  }

  #shelves({ shelves, byId }) {
    if (!byId.size) return html`<p class="soft">There are no documents yet.</p>`;
    const words = wordsOf(this.query);
    const inside = (shelf) => [...shelf.values()].filter((document) => holds(document, words));
    const found = [...shelves].map(([category, shelf]) => [category, inside(shelf)]);
    const some = found.filter(([, documents]) => documents.length > 0);
    if (!some.length) return html`<p class="soft">No document has these words.</p>`;
    return some.map(([category, documents]) => this.#shelf(category, documents));
  }

  /** In the order of the session, its end. Who searches sees what was found; else a group is folded. */
  #shelf(category, documents) {
    const shown = this.shown[category] ?? MORE;
    const more = () => (this.shown = { ...this.shown, [category]: shown + MORE });
    const isOpen = this.query !== "" || this.#unfolded.has(category) || documents.some(({ id }) => id === this.open);
    return html`<details data-kind=${category} ?open=${isOpen} @toggle=${(event) => this.#fold(category, event)}>
      <summary>${SHELVES.get(category)} <span class="soft">${formatCount(documents.length)}</span></summary>
      ${
        documents.length > shown
          ? html`<button @click=${more}>
        Show earlier ones (${formatCount(documents.length - shown)})</button>`
          : nothing
      }
      <ul class="rows">${documents.slice(-shown).map((document) => this.#row(document))}</ul>
    </details>`;
  }

  #row(document) {
    const [name, more] = titleOf(document);
    const isOpen = document.id === this.open;
    return html`<li data-id=${document.id}>
      <button class="plain document" aria-expanded=${isOpen} @click=${() => this.#choose(document.id)}>
        <strong>${name}</strong> <span>${more}</span>
        ${document.type === "artifact" ? html`<small class="soft">${size(document.body.sizeBytes)}</small>` : nothing}
      </button>
      ${isOpen ? this.#detail(document) : nothing}</li>`;
  }

  #detail({ id, type, body }) {
    return html`<div class="detail">
      <p class="soft">${toEvent(body.seq, `Event ${body.seq}`)}, 
        <time datetime=${body.createdAt} title=${zoneOf(body.createdAt)}>${momentOf(body.createdAt)}</time>,
        <span class="mono">${id}</span></p>
      ${type === "message" ? body.content.map((part) => this.#part(part)) : nothing}
      <pre class="json" tabindex="0" aria-label="The document as JSON">${JSON.stringify(body, null, 2)}</pre>
    </div>`;
  }

  #part({ type, text, thinking, name, input }) {
    if (type === "tool_use") return html`<p>calls <strong>${name}</strong> <code>${JSON.stringify(input)}</code></p>`;
    return html`<pre class="words ${type}">${text ?? thinking}</pre>`;
  }

  async #title() {
    const { sessions } = await this.session.client.listSessions({ session: this.session.id });
    return sessions[0]?.title || "Session";
  }

  #lines() {
    return this.attempt(async () => {
      const { client, id } = this.session;
      const [title, text] = await Promise.all([this.#title(), client.log(id)]);
      save(fileName(title, "jsonl"), text, "application/jsonl");
    });
  }

  #words() {
    return this.attempt(async () => {
      const title = await this.#title();
      const { record, me } = this.session;
      const people = { me: me.name, nameOf: (principal) => record.nameOf(principal) };
      save(fileName(title, "md"), markdown(record.conversation, title, people), "text/markdown");
    });
  }
}

customElements.define("tl-documents", DocumentList);
