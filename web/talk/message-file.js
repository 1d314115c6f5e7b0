/**
 * `<tl-talk-file>`: a file of a message: an image, or a link that saves the file. With a token the file is requested by
 * the client, because an image and a link of a page send no token.
 *
 * Members write the addresses of files. Only a blob of the server is loaded; a file on the web is a link with its host.
 */

import { html, nothing } from "lit";

import { allowedLink, blobUrl, linkHost } from "../console/markdown/url-policy.js";
import { formatFileSize } from "../console/ui/attachment-limits.js";
import { ConsoleElement } from "../console/ui/base-element.js";
import { downloadFile } from "../console/ui/download.js";

const IMAGE_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]); // that the server sends as images

export class TalkFile extends ConsoleElement {
  static properties = {
    talk: { attribute: false },
    part: { attribute: false },
    address: { state: true },
    problem: { state: true }, // with the image
    isUnsaved: { state: true },
  };
  #ownAddress = null; // an object URL, to be revoked

  constructor() {
    super();
    Object.assign(this, { address: null, problem: false, isUnsaved: false });
  }

  /** A guest may read a file when a message in the log has it. */
  willUpdate(changed) {
    if (!changed.has("part") || this.part.seq < 0 || this.address !== null || !this.#isStored) return;
    if (!this.talk.hasToken) this.address = this.talk.addressOf(this.part.src);
    else if (this.#isImage) this.#load();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    if (this.#ownAddress) URL.revokeObjectURL(this.#ownAddress);
  }

  get #isStored() {
    return blobUrl(this.part.src) !== null;
  }

  get #isImage() {
    return IMAGE_TYPES.has(this.part.media_type);
  }

  async #load() {
    try {
      this.#ownAddress = URL.createObjectURL(await this.talk.client.readFile(this.part.src));
      this.address = this.#ownAddress;
    } catch {
      this.problem = true;
    }
  }

  async #save(event) {
    if (!this.talk.hasToken) return; // the link does it
    event.preventDefault();
    this.isUnsaved = false;
    try {
      downloadFile(this.#name, await this.talk.client.readFile(this.part.src));
    } catch {
      this.isUnsaved = true;
    }
  }

  get #name() {
    return this.part.filename ?? this.talk.texts.file;
  }

  render() {
    return this.#isStored ? this.#drawStored() : this.#drawOther();
  }

  #drawOther() {
    const link = allowedLink(this.part.src);
    const name = html`<span class="name">${this.#name}</span>`;
    if (link === null) return html`<span class="file">${name}</span>`;
    return html`<a class="file" href=${link} target="_blank" rel="noopener noreferrer nofollow">${name}
      <span class="size">${linkHost(link)}</span></a>`;
  }

  #drawStored() {
    const { texts, language } = this.talk;
    const { size_bytes } = this.part;
    const name = this.#name;
    const size = size_bytes === null ? "" : formatFileSize(size_bytes, language);
    const label = html`<span class="name">${name}</span> <span class="size">${size || nothing}</span>`;
    if (this.part.seq < 0) return html`<span class="file">${label}</span>`;
    const picture = this.#isImage && this.address && !this.problem;
    return html`<a class=${picture ? "picture" : "file"} href=${this.address ?? "#"} download=${name}
      aria-label=${texts.download(picture ? name : `${name} ${size}`.trim())} title=${name} @click=${this.#save}>
      ${picture ? html`<img src=${this.address} alt=${name} @error=${() => (this.problem = true)}>` : label}</a>
      ${this.isUnsaved ? html`<p class="state wrong" role="alert">${texts.downloadFailed}</p>` : nothing}`;
  }
}

customElements.define("tl-talk-file", TalkFile);
