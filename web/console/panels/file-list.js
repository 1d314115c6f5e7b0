/**
 * `<tl-files>`: the files of a session, to view and download. HTML is shown as text: nothing that a model wrote runs
 * here.
 */

import { html, nothing } from "lit";

import { eventLink } from "../app/router.js";
import { SessionFiles, previewKind } from "../store/session-files.js";
import { SessionElement } from "../ui/base-element.js";
import { downloadFile } from "../ui/download.js";
import { formatBytes } from "../ui/format.js";
import { formatDateTime, utcTooltip } from "../ui/time-format.js";
import "./panels.css";

const MAX_CHARS = 200_000;

export class FileList extends SessionElement {
  static properties = { open: { state: true }, texts: { state: true } };

  constructor() {
    super();
    Object.assign(this, { open: "", texts: new Map() });
  }

  render() {
    const { list } = this.session.log.fold(SessionFiles);
    return html`<section class="files" aria-labelledby="files-title">
      <h2 id="files-title">Files</h2>
      ${
        list.length
          ? html`<ul class="rows">${list.map((file) => this.#drawRow(file))}</ul>`
          : html`<p class="soft">No file was written yet.</p>`
      }
    </section>`;
  }

  #drawRow(file) {
    const isOpen = file.key === this.open;
    return html`<li>
      <button class="plain document" aria-expanded=${isOpen} @click=${() => this.#choose(file)}>
        <strong>${file.name}</strong>
        <span>${file.size === null ? nothing : formatBytes(file.size)}</span>
      </button>
      ${isOpen ? this.#drawDetail(file) : nothing}</li>`;
  }

  #choose(file) {
    this.open = this.open === file.key ? "" : file.key;
    if (this.open && file.address && previewKind(file.name) === "text") this.#fetch(file.address);
  }

  #fetch(address) {
    return this.attempt(async () => {
      if (this.texts.has(address)) return;
      const response = await fetch(address);
      if (!response.ok) throw new Error(`The server does not have this file (${response.status}).`);
      this.texts = new Map([...this.texts, [address, await response.text()]]);
    });
  }

  #drawDetail({ name, ts, seq, content, address }) {
    return html`<div class="detail">
      <p class="soft row">${eventLink(seq, `Event ${seq}`)}
        <time datetime=${ts} title=${utcTooltip(ts)}>${formatDateTime(ts)}</time>
        ${
          content === null
            ? nothing
            : html`<button @click=${() => downloadFile(name.split("/").at(-1), content, "text/plain")}>
          Download</button>`
        }
        ${address ? html`<a href=${address} download=${name.split("/").at(-1)}>Download</a>` : nothing}</p>
      ${this.#drawPreview(name, content ?? this.texts.get(address), address)}
    </div>`;
  }

  #drawPreview(name, text, address) {
    if (text !== undefined && text !== null) {
      return html`<pre class="json" tabindex="0" aria-label="Contents of ${name}">${text.slice(0, MAX_CHARS)}</pre>
        ${text.length > MAX_CHARS ? html`<p class="soft">The rest is too long to show.</p>` : nothing}`;
    }
    if (!address) return html`<p class="soft">The log does not hold the contents of this file.</p>`;
    return previewKind(name) === "picture" ? html`<img src=${address} alt="The file ${name}">` : nothing;
  }
}

customElements.define("tl-files", FileList);
