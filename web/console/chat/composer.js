/**
 * `<tl-composer>`: the input box. Enter sends, Shift+Enter begins a line, Escape in an empty box stops the agents.
 *
 * The text stays in the box until the log has the message, also through a reload. Without a connection the composer
 * sends it when the connection is back. During a turn the server queues a message. Target and channel are offered only
 * if there is a choice, and the choice lasts as long as the tab. Files are picked, pasted or dropped; the element for
 * them is loaded when the application takes files.
 */

import { html, nothing } from "lit";

import { Unreachable } from "../../client/api/errors.js";
import { newId } from "../../client/shared/ids.js";
import { loadSetting, saveSetting, tabStorage } from "../app/storage.js";
import { SessionElement } from "../ui/base-element.js";
import { ATTACHMENT_TEXTS } from "./attachment-texts.js";

/** Folds `roster.join` to the names of a team. */
class TeamNames {
  names = new Set();

  apply({ type, payload }) {
    if (type === "roster.join") this.names.add(payload.name);
  }
}

const UNSENT_KEY = "unsent";
const RETRY_MS = 2000; // between attempts while the stream works and posting does not
const HAS_FIELD_SIZING = CSS.supports("field-sizing", "content");

export class Composer extends SessionElement {
  static properties = {
    limits: { state: true },
    sending: { state: true },
    target: { state: true },
    channel: { state: true },
  };
  #stopping = null;
  #stopListening = null; // to files that are pasted or dropped
  #cancelWait = null; // () => void while a message waits for the connection
  #unsent = ""; // idempotency key and JSON of the message that is being sent

  constructor() {
    super();
    this.#reset();
  }

  #reset() {
    const savedChoice = (name) => (this.session ? loadSetting(`${name} ${this.session.id}`, "") : "");
    Object.assign(this, { sending: false, limits: null, target: savedChoice("to"), channel: savedChoice("in") });
    this.#stopping = null;
    this.#cancelWait?.();
  }

  #saveChoice(name, property, value) {
    this[property] = value;
    saveSetting(`${name} ${this.session.id}`, value);
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (changed.has("session")) this.#reset();
  }

  updated(changed) {
    if (!changed.has("session")) return;
    this.#loadLimits(this.session);
    this.#field.value = tabStorage.read(this.#draftKey) ?? "";
    this.#fitHeight();
  }

  /** Ask which files the application takes. Without an answer the composer offers none. */
  async #loadLimits(session) {
    const { sessions } = await session.client.listSessions({ session: session.id }).catch(() => ({ sessions: [] }));
    const limits = sessions[0]?.attachments;
    if (session !== this.session || !limits?.max_count) return;
    await import("../ui/attachment-tray.js");
    this.limits = limits;
    await this.updateComplete;
    this.#stopListening?.();
    this.#stopListening = this.#tray.listen(this.querySelector(".composer"));
    this.#tray.clear();
  }

  get #tray() {
    return this.querySelector("tl-attachments");
  }

  get #files() {
    return (this.#tray?.uploaded ?? []).map(({ blob, name }) => ({ blob, name }));
  }

  get #field() {
    return this.querySelector("textarea");
  }

  get #draftKey() {
    return `draft ${this.session.me.name} ${this.session.id}`; // with the person: another may use this tab later
  }

  #onInput() {
    this.#fitHeight();
    tabStorage.write(this.#draftKey, this.#field.value);
  }

  /** Append a text to what is typed, unsent, and focus the box. */
  prefill(text) {
    const field = this.#field;
    field.value = [field.value.trimEnd(), text].filter(Boolean).join("\n\n");
    this.#onInput();
    this.focusInput();
  }

  focusInput() {
    this.#field?.focus();
  }

  /** Fit the height to the text where CSS cannot: reading a height lays out the whole page. */
  #fitHeight() {
    if (HAS_FIELD_SIZING) return;
    const field = this.#field;
    field.style.setProperty("height", "auto");
    field.style.setProperty("height", `${field.scrollHeight + 2}px`);
  }

  #onKeyDown(event) {
    if (event.isComposing || event.keyCode === 229) return; // Safari: the Enter that ends a composition has isComposing false
    if (event.key === "Escape" && !this.#field.value && this.session.isOpen) this.#stop();
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    this.#submit();
  }

  async #submit() {
    const text = this.#field.value;
    const key = this.#draftKey;
    const hasContent = text.trim() !== "" || this.#files.length > 0;
    const isReady = !this.sending && !this.#tray?.isUploading && !this.#tray?.hasFailed;
    if (!hasContent || !isReady || !(await this.send(text, this.#files))) return;
    this.#tray?.clear();
    tabStorage.remove(key);
    if (key !== this.#draftKey || this.#field.value !== text) return; // the person typed on meanwhile
    this.#field.value = "";
    this.#fitHeight();
  }

  /** Send a message; return true when it is in the log. Its event may arrive before the response does. */
  async send(text, files = []) {
    if (this.sending) return false;
    const { session, target } = this;
    const attachments = files.length > 0 ? files : undefined;
    const to = { session: session.id, target: target || undefined, channel: this.#currentChannel, attachments };
    const [arrived, ignore] = waitForOwnMessage(session, text);
    this.sending = true;
    const sent = await this.attempt(() => Promise.race([arrived, this.#post(session, text, to)]));
    ignore();
    if (session === this.session) this.sending = false;
    if (!sent) return false;
    this.#unsent = "";
    tabStorage.remove(UNSENT_KEY);
    this.dispatchEvent(new CustomEvent("sent", { bubbles: true }));
    return true;
  }

  /** Post a message, again after each reconnect; null if the person cancels. */
  async #post(session, text, to) {
    const key = this.#idempotencyKey(text, to);
    for (;;) {
      try {
        return await session.client.send(text, { ...to, key });
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        if (!(await this.#waitForConnection(session))) return null;
      }
    }
  }

  /** Wait for the connection; false if the person cancels or opens another session. */
  async #waitForConnection(session) {
    if (session !== this.session) return false;
    const isBack = await new Promise((resolve) => {
      const look = () => session.connection === "live" && resolve(true);
      const stop = session.watch(look);
      this.#cancelWait = () => {
        stop();
        resolve(false);
      };
      setTimeout(look, RETRY_MS); // the stream may never have been cut
    });
    this.#cancelWait?.();
    this.#cancelWait = null;
    return isBack;
  }

  /**
   * Return the key of a message. A message that got no response keeps its key, also through a reload: it may have
   * arrived.
   */
  #idempotencyKey(text, to) {
    const message = JSON.stringify([text, to]);
    this.#unsent ||= tabStorage.read(UNSENT_KEY) ?? "";
    if (!this.#unsent.endsWith(message)) this.#unsent = newId() + message;
    tabStorage.write(UNSENT_KEY, this.#unsent);
    return this.#unsent.slice(0, -message.length);
  }

  /** Stop the agents; one request at a time. */
  #stop() {
    const stop = () => this.session.client.stop(this.session.id);
    this.#stopping ??= this.attempt(stop).finally(() => (this.#stopping = null));
  }

  /** The agents or team members that a message can name. */
  get #targets() {
    const { app, log } = this.session;
    if (app.process) return [...log.fold(TeamNames).names];
    return app.agents.length > 1 ? app.agents : [];
  }

  /** What the server would do with a message now (docs/protocol.md, section 4). */
  get #messageEffect() {
    if (!this.session.isOpen) return "";
    return this.session.isWorking ? " (it will be queued)" : " (cancels the open question)";
  }

  /** The person's roles in this session and on the server. */
  get #roles() {
    const { me, snapshot } = this.session;
    const member = snapshot.members.find(({ principal }) => principal === me.name);
    return [...(member?.roles ?? []), ...me.roles];
  }

  /** The channels the person may write to; owners and operators may write to all. */
  get #channels() {
    const roles = this.#roles;
    const isFree = roles.includes("owner") || roles.includes("operator");
    return this.session.app.channels.filter((name) => isFree || roles.includes(name));
  }

  /** The channel of a message without a choice; undefined if the server decides. */
  get #defaultChannel() {
    const roles = this.#roles;
    return this.#channels.find((name) => roles.includes(name)) ?? this.#channels[0];
  }

  /** The chosen channel if the person may still write to it. */
  get #currentChannel() {
    return this.#channels.includes(this.channel) ? this.channel : this.#defaultChannel;
  }

  #drawFiles() {
    if (!this.limits) return nothing;
    const { client, id } = this.session;
    const upload = (file, type, options) => client.upload(id, file, { type, ...options });
    return html`<tl-attachments .limits=${this.limits} .texts=${ATTACHMENT_TEXTS} .language=${"en"} .upload=${upload}
      @change=${() => this.requestUpdate()} @emptied=${this.focusInput}></tl-attachments>`;
  }

  #drawOffline() {
    if (!this.sending || this.session.connection === "live") return nothing;
    return html`<p class="offline" role="status">No connection. Your message will be sent when the connection is back.
      ${this.#cancelWait ? html`<button type="button" @click=${() => this.#cancelWait?.()}>Do not send</button>` : nothing}</p>`;
  }

  render() {
    const [{ isOpen }, channels] = [this.session, this.#channels];
    return html`${this.#drawOffline()}<form class="composer" @submit=${(event) => {
      event.preventDefault();
      this.#submit();
    }}>
      ${this.#drawFiles()}
      <textarea rows="1" aria-label="Message" placeholder="Write a message${this.#messageEffect}" enterkeyhint="send"
        @input=${this.#onInput} @keydown=${this.#onKeyDown} ?readonly=${this.sending}></textarea>
      <div class="tools">
        ${drawSelect("To", this.#targets, this.target, "any agent", (name) => this.#saveChoice("to", "target", name))}
        ${drawSelect("In", channels.length > 1 ? channels : [], this.#currentChannel, null, (name) =>
          this.#saveChoice("in", "channel", name),
        )}
        ${
          this.limits
            ? html`<button type="button" class="plain" ?disabled=${this.sending} aria-label="Attach files" @click=${() => this.#tray.pick()}>Attach</button>`
            : nothing
        }
        <div class="actions">
          <button type="button" ?disabled=${!isOpen} @click=${this.#stop}>Stop</button>
          <button class="strong" ?disabled=${this.sending}>Send</button>
        </div>
      </div>
    </form>`;
  }
}

/** Return a promise that the person's own message arrives over the stream, and a function that stops waiting. */
function waitForOwnMessage(session, text) {
  const from = session.log.events.length;
  const isOurs = ({ type, actor, payload }) =>
    type === "ui.message" && actor === session.me.name && text.trim().endsWith(payload.text.trim());
  let stop;
  const arrived = new Promise((resolve) => {
    stop = session.watch(() => session.log.events.slice(from).some(isOurs) && resolve(true));
  });
  return [arrived, stop];
}

/** Draw a select; nothing without options. */
function drawSelect(label, names, chosen, none, choose) {
  if (!names.length) return nothing;
  return html`<label>${label} <select @change=${({ target }) => choose(target.value)}>
    ${none ? html`<option value="" ?selected=${!chosen}>${none}</option>` : nothing}
    ${names.map((name) => html`<option value=${name} ?selected=${name === chosen}>${name}</option>`)}
  </select></label>`;
}

customElements.define("tl-composer", Composer);
