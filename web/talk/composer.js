/**
 * `<tl-talk-composer>`: the input of a message with its files. Enter sends and Shift+Enter begins a line; on a phone,
 * whose keyboard has no Shift, Enter begins a line. What is typed and uploaded survives a reload until it is sent.
 */

import { html, nothing } from "lit";

import { openDraft } from "../console/app/storage.js";
import "../console/ui/attachment-tray.js";
import { ConsoleElement } from "../console/ui/base-element.js";

export class TalkComposer extends ConsoleElement {
  static properties = {
    talk: { attribute: false },
    status: { attribute: false },
    stopping: { state: true },
    waits: { state: true }, // for uploads, to send then
  };
  #stopListening = null;

  constructor() {
    super();
    Object.assign(this, { stopping: false, waits: false });
  }

  get #draft() {
    return openDraft(this.talk.id, "composer", "message");
  }

  get #textarea() {
    return this.querySelector("textarea");
  }

  get #tray() {
    return this.querySelector("tl-attachments");
  }

  async firstUpdated() {
    const { text = "", files = [] } = this.#draft.read() ?? {};
    this.#textarea.value = String(text);
    await this.#tray.updateComplete;
    if (Array.isArray(files) && files.length > 0) this.#tray.restore(files);
    this.#stopListening = this.#tray.listen(this.querySelector(".composer"));
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.#stopListening?.();
  }

  willUpdate(changed) {
    if (changed.has("status") && this.status !== "running") this.stopping = false;
  }

  focus() {
    this.#textarea.focus();
  }

  #saveDraft() {
    const draft = { text: this.#textarea.value, files: this.#tray.uploaded };
    if (draft.text === "" && draft.files.length === 0) this.#draft.clear();
    else this.#draft.write(draft);
  }

  #onKey(event) {
    const isEnter = event.key === "Enter" && !event.shiftKey && !event.isComposing;
    if (!isEnter || matchMedia("(pointer: coarse)").matches) return;
    event.preventDefault();
    this.#submit();
  }

  #onFiles() {
    this.#saveDraft();
    this.requestUpdate();
    if (this.waits && !this.#tray.isUploading) {
      this.waits = false;
      if (!this.#tray.hasFailed) this.#submit();
    }
  }

  #submit() {
    const tray = this.#tray;
    if (tray.isUploading) {
      this.waits = true;
      return;
    }
    const text = this.#textarea.value;
    const attachments = tray.uploaded;
    if ((text.trim() === "" && attachments.length === 0) || tray.hasFailed) return;
    const draft = this.#draft;
    const sending = this.talk.store.send(text, { attachments });
    this.#textarea.value = "";
    tray.clear();
    draft.write({ text, files: attachments }); // a reload before the answer gives it back
    sending.then(() => this.#saveDraft()).catch((error) => error.status === 409 && this.talk.refresh());
    this.dispatchEvent(new CustomEvent("sent", { bubbles: true }));
    this.focus();
  }

  async #stop() {
    this.stopping = true;
    try {
      await this.talk.store.stop();
    } catch {
      this.stopping = false;
    }
  }

  render() {
    const { texts, language, info, id } = this.talk;
    const limits = info.attachments?.max_count > 0 ? info.attachments : null;
    const upload = (file, type, options) => this.talk.client.upload(id, file, { type, ...options });
    return html`<form class="composer" aria-label=${texts.message} data-drop-text=${texts.dropHere}
      @submit=${(event) => {
        event.preventDefault();
        this.#submit();
      }}>
      <tl-attachments .limits=${limits} .texts=${texts} .language=${language} .upload=${upload}
        @change=${this.#onFiles} @emptied=${this.focus}></tl-attachments>
      <div class="row">
        ${limits ? this.#drawAttach(texts) : nothing}
        <textarea rows="1" aria-label=${texts.message} placeholder=${texts.placeholder} dir="auto" enterkeyhint="enter"
          @input=${this.#saveDraft} @keydown=${this.#onKey}></textarea>
        ${this.status === "running" ? this.#drawStop(texts) : nothing}
        <button class="strong icon" aria-label=${texts.send} title=${texts.send}>${SEND_ICON}</button>
      </div>
      <p class="state" role="status">${this.waits ? texts.waitForUploads : ""}</p>
    </form>`;
  }

  #drawAttach(texts) {
    return html`<button type="button" class="plain icon" aria-label=${texts.attach} title=${texts.attach}
      @click=${() => this.#tray.pick()}>${ATTACH_ICON}</button>`;
  }

  #drawStop(texts) {
    return html`<button type="button" class="icon" ?disabled=${this.stopping} aria-label=${texts.stop} title=${texts.stop}
      @click=${this.#stop}>${STOP_ICON}</button>`;
  }
}

const ATTACH_ICON = html`<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M8 12.5l6.2-6.2a3.1 3.1 0 0 1 4.4 4.4l-8 8a5 5 0 0 1-7.1-7.1l7.6-7.6"/></svg>`;
const SEND_ICON = html`<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M12 19V5M5.5 11.5L12 5l6.5 6.5"/></svg>`;
const STOP_ICON = html`<svg viewBox="0 0 24 24" aria-hidden="true"><rect x="7" y="7" width="10" height="10" rx="1.5" fill="currentColor"/></svg>`;

customElements.define("tl-talk-composer", TalkComposer);
