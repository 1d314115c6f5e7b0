/**
 * `<tl-documents>`: the files of the session, its export, and the documents that a database beside the page would
 * store. Contents are shown as text.
 */

import { html, nothing } from "lit";
import { guard } from "lit/directives/guard.js";

import { eventLink } from "../app/router.js";
import { loadSetting, saveSetting } from "../app/storage.js";
import { CATEGORY_TITLES, DocumentIndex, documentTitle, matchesQuery, queryWords } from "../store/document-index.js";
import { exportFileName, exportMarkdown } from "../store/markdown-export.js";
import { SessionElement } from "../ui/base-element.js";
import { downloadFile } from "../ui/download.js";
import { formatBytes, formatCount } from "../ui/format.js";
import { drawShowEarlier } from "../ui/show-earlier.js";
import { formatDateTime, utcTooltip } from "../ui/time-format.js";
import "./file-list.js";
import "../ui/json-tree.js";
import "./panels.css";

const PAGE_DOCUMENTS = 50; // per page of a category

export class DocumentsPanel extends SessionElement {
  static properties = { query: { state: true }, open: { state: true }, shown: { state: true } };

  #unfolded = new Set(); // categories that the person unfolded

  constructor() {
    super();
    Object.assign(this, { query: loadSetting("documents", ""), open: loadSetting("document", ""), shown: {} });
  }

  render() {
    const library = this.session.log.fold(DocumentIndex);
    const chosen = [library, library.version, this.query, this.open, this.shown];
    return html`<div class="pad documents">
      <tl-files .session=${this.session}></tl-files>
      <section class="export" aria-labelledby="export-title">
        <h2 id="export-title">Export</h2>
        <div class="row">
          <button @click=${this.#exportJsonl}>JSONL</button>
          <button @click=${this.#exportMarkdown}>Markdown</button>
          <span class="soft grow">The whole log, or the conversation as it is shown.</span>
        </div>
      </section>
      <section class="stored" aria-labelledby="stored-title">
        <h2 id="stored-title">Stored documents</h2>
        <label class="find">Find <input type="search" .value=${this.query} @input=${this.#find}></label>
        ${guard(chosen, () => this.#drawCategories(library))}
      </section>
    </div>`;
  }

  #fold(category, { target }) {
    this.#unfolded[target.open ? "add" : "delete"](category);
  }

  #find({ target }) {
    this.query = target.value;
    this.shown = {};
    saveSetting("documents", this.query);
  }

  #choose(id) {
    this.open = this.open === id ? "" : id;
    saveSetting("document", this.open);
  }

  #drawCategories({ byCategory, byId }) {
    if (!byId.size) return html`<p class="soft">There are no documents yet.</p>`;
    const words = queryWords(this.query);
    const inside = (group) => [...group.values()].filter((document) => matchesQuery(document, words));
    const found = [...byCategory].map(([category, group]) => [category, inside(group)]);
    const some = found.filter(([, documents]) => documents.length > 0);
    if (!some.length) return html`<p class="soft">No document has these words.</p>`;
    return some.map(([category, documents]) => this.#drawCategory(category, documents));
  }

  /** Draw the last documents of a category. It is unfolded while the person searches. */
  #drawCategory(category, documents) {
    const shown = this.shown[category] ?? PAGE_DOCUMENTS;
    const more = () => (this.shown = { ...this.shown, [category]: shown + PAGE_DOCUMENTS });
    const isOpen = this.query !== "" || this.#unfolded.has(category) || documents.some(({ id }) => id === this.open);
    return html`<details data-kind=${category} ?open=${isOpen} @toggle=${(event) => this.#fold(category, event)}>
      <summary>${CATEGORY_TITLES.get(category)} <span class="soft">${formatCount(documents.length)}</span></summary>
      ${drawShowEarlier(documents.length - shown, "ones", more)}
      <ul class="rows">${documents.slice(-shown).map((document) => this.#drawRow(document))}</ul>
    </details>`;
  }

  #drawRow(document) {
    const [name, more] = documentTitle(document);
    const isOpen = document.id === this.open;
    return html`<li data-id=${document.id}>
      <button class="plain document" aria-expanded=${isOpen} @click=${() => this.#choose(document.id)}>
        <strong>${name}</strong> <span>${more}</span>
        ${document.type === "artifact" ? html`<small class="soft">${formatBytes(document.body.sizeBytes)}</small>` : nothing}
      </button>
      ${isOpen ? this.#drawDetail(document) : nothing}</li>`;
  }

  #drawDetail({ id, type, body }) {
    return html`<div class="detail">
      <p class="soft">${eventLink(body.seq, `Event ${body.seq}`)}, 
        <time datetime=${body.createdAt} title=${utcTooltip(body.createdAt)}>${formatDateTime(body.createdAt)}</time>,
        <span class="mono">${id}</span></p>
      ${type === "message" ? body.content.map((part) => this.#drawPart(part)) : nothing}
      <div class="json" role="region" tabindex="0" aria-label="The document as JSON"><tl-json .value=${body}></tl-json></div>
    </div>`;
  }

  #drawPart({ type, text, thinking, name, input }) {
    if (type === "tool_use") return html`<p>calls <strong>${name}</strong> </p><tl-json .value=${input}></tl-json>`;
    return html`<pre class="words ${type}">${text ?? thinking}</pre>`;
  }

  async #fetchTitle() {
    const { sessions } = await this.session.client.listSessions({ session: this.session.id });
    return sessions[0]?.title || "Session";
  }

  #exportJsonl() {
    return this.attempt(async () => {
      const { client, id } = this.session;
      const [title, text] = await Promise.all([this.#fetchTitle(), client.log(id)]);
      downloadFile(exportFileName(title, "jsonl"), text, "application/jsonl");
    });
  }

  #exportMarkdown() {
    return this.attempt(async () => {
      const title = await this.#fetchTitle();
      const { entries, queue, me } = this.session;
      const people = { me: me.name, displayName: (principal) => this.session.displayName(principal) };
      downloadFile(exportFileName(title, "md"), exportMarkdown({ entries, queue }, title, people), "text/markdown");
    });
  }
}

customElements.define("tl-documents", DocumentsPanel);
