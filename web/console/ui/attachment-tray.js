/**
 * `<tl-attachments>`: the files of a message before it is sent: picked, pasted or dropped, with progress and errors.
 *
 * Each file is uploaded at once. `upload(file, type, {onProgress, signal})` does it, and `limits`, `texts` and
 * `language` say what is allowed and in which words. `listen(element)` takes files that are pasted or dropped on an
 * element. The event `change` tells that `uploaded`, `isUploading` or `hasFailed` may have changed.
 */

import { html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";

import "./attachment-tray.css";
import { ConsoleElement } from "./base-element.js";
import { fileKind, fileProblem, formatFileSize, mediaTypeOf } from "./attachment-limits.js";

const MAX_NAME_BYTES = 128; // of a name in the log

let count = 0;

export class AttachmentTray extends ConsoleElement {
  static properties = {
    limits: { attribute: false },
    texts: { attribute: false },
    language: { attribute: false },
    upload: { attribute: false },
    problems: { state: true },
    status: { state: true },
  };
  #items = []; // { key, name, size, type, share, result, problem, controller, preview }

  constructor() {
    super();
    Object.assign(this, { limits: null, problems: [], status: "" });
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const item of this.#items) release(item);
  }

  /** The uploaded files with their names. */
  get uploaded() {
    return this.#items.filter(({ result }) => result !== null).map(({ name, result }) => ({ ...result, name }));
  }

  get isUploading() {
    return this.#items.some(({ result, problem }) => result === null && problem === null);
  }

  get hasFailed() {
    return this.#items.some(({ problem }) => problem !== null);
  }

  /** Show files that were uploaded before, for example before a reload. */
  restore(files) {
    this.#items = files.map((result) => ({
      ...newItem(result.name, result.size_bytes, result.media_type),
      share: 1,
      result,
    }));
    this.#change();
  }

  /** Let a person choose files. */
  pick() {
    this.querySelector("input").click();
  }

  clear() {
    for (const item of this.#items) release(item);
    this.#items = [];
    Object.assign(this, { problems: [], status: "" });
    this.#change();
  }

  /** Add files, and upload those that are allowed. */
  add(files) {
    if (!this.limits) return;
    this.problems = [];
    for (const file of files) this.#addFile(file);
    this.#change();
  }

  #addFile(file) {
    const { max_count } = this.limits;
    const problem =
      this.#items.length >= max_count
        ? this.texts.tooMany(max_count)
        : fileProblem(file, this.limits, this.texts, this.language);
    if (problem !== null) {
      this.problems = [...new Set([...this.problems, problem])];
      return;
    }
    const type = mediaTypeOf(file);
    const item = newItem(shortName(file.name), file.size, type);
    if (fileKind(type) === "image") item.preview = URL.createObjectURL(file);
    this.#items = [...this.#items, item];
    this.#send(item, file);
  }

  async #send(item, file) {
    const onProgress = (share) => {
      item.share = share;
      this.requestUpdate();
    };
    try {
      item.result = await this.upload(file, item.type, { onProgress, signal: item.controller.signal });
      this.status = this.texts.uploaded(item.name);
    } catch (error) {
      const words = error.status === 429 ? this.texts.tooManyUploads : this.texts.uploadFailed;
      item.problem = words(item.name);
    }
    this.#change();
  }

  async #remove(item) {
    const at = this.#items.indexOf(item);
    release(item);
    this.#items = this.#items.filter((each) => each !== item);
    this.problems = [];
    this.#change();
    await this.updateComplete;
    const buttons = this.querySelectorAll("li button");
    if (buttons.length > 0) buttons[Math.min(at, buttons.length - 1)].focus();
    else this.dispatchEvent(new CustomEvent("emptied"));
  }

  #change() {
    this.requestUpdate();
    this.dispatchEvent(new CustomEvent("change"));
  }

  /** Take files that are pasted into an element or dropped on it; return a function that ends it. */
  listen(element) {
    const hasFiles = ({ dataTransfer }) => dataTransfer?.types.includes("Files") ?? false;
    let depth = 0; // of elements that the pointer is over
    const mark = (change) => {
      depth = change === 0 ? 0 : depth + change;
      element.toggleAttribute("data-drop", depth > 0);
    };
    const take = (event, files) => {
      if (!this.limits || files.length === 0) return;
      event.preventDefault();
      this.add(files);
    };
    const listeners = {
      paste: (event) => take(event, [...(event.clipboardData?.files ?? [])]),
      dragenter: (event) => hasFiles(event) && mark(1),
      dragleave: (event) => hasFiles(event) && mark(-1),
      dragover: (event) => hasFiles(event) && event.preventDefault(),
      drop: (event) => {
        mark(0);
        take(event, [...(event.dataTransfer?.files ?? [])]);
      },
    };
    for (const [type, listener] of Object.entries(listeners)) element.addEventListener(type, listener);
    return () => {
      for (const [type, listener] of Object.entries(listeners)) element.removeEventListener(type, listener);
    };
  }

  render() {
    const { limits, texts } = this;
    return html`<input type="file" multiple hidden accept=${limits?.media_types.join(",") ?? nothing}
        @change=${({ target }) => {
          this.add([...target.files]);
          target.value = "";
        }}>
      ${this.#items.length > 0 ? this.#drawItems(texts) : nothing}
      ${this.problems.map((problem) => html`<p class="wrong" role="alert">${problem}</p>`)}
      <p class="unseen" role="status">${this.status}</p>`;
  }

  #drawItems(texts) {
    return html`<ul class="files" aria-label=${texts.attachments}>${repeat(
      this.#items,
      ({ key }) => key,
      (item) => this.#drawItem(item, texts),
    )}</ul>`;
  }

  #drawItem(item, texts) {
    const { name, size, share, result, problem, preview } = item;
    const percent = Math.round(100 * share);
    const isOpen = result === null && problem === null;
    return html`<li data-state=${problem ? "failed" : isOpen ? "uploading" : "ready"}>
      ${preview ? html`<img src=${preview} alt="">` : html`<span class="sort" aria-hidden="true">${ending(name)}</span>`}
      <span class="name" title=${name}>${name}</span>
      <span class="size">${problem ? nothing : formatFileSize(size, this.language)}</span>
      <button type="button" class="plain" aria-label=${texts.remove(name)} title=${texts.remove(name)}
        @click=${() => this.#remove(item)}>×</button>
      ${isOpen ? html`<progress max="100" .value=${percent} aria-label=${texts.uploading(name, percent)}></progress>` : nothing}
      ${problem ? html`<span class="wrong" role="alert">${problem}</span>` : nothing}
    </li>`;
  }
}

function newItem(name, size, type) {
  count += 1;
  const controller = new AbortController();
  return { key: count, name, size, type, share: 0, result: null, problem: null, controller, preview: null };
}

/** Stop an upload, and free its picture. */
function release({ controller, preview }) {
  controller.abort();
  if (preview) URL.revokeObjectURL(preview);
}

const ending = (name) => (name.includes(".") ? name.split(".").at(-1).slice(0, 4).toUpperCase() : "");

/** Return a name that the server accepts: of a long one the middle is left out. */
function shortName(name) {
  const characters = Array.from(name.normalize().replace(/\p{Cc}/gu, " "));
  let kept = characters;
  for (let size = characters.length; byteLength(kept) > MAX_NAME_BYTES; size -= 2) {
    const half = Math.floor(size / 2) - 1;
    kept = [...characters.slice(0, half), "…", ...characters.slice(-half)];
  }
  return kept.join("");
}

const byteLength = (characters) => new TextEncoder().encode(characters.join("")).length;

customElements.define("tl-attachments", AttachmentTray);
