/**
 * `<tl-composer>`: where a person writes. Enter sends, Shift+Enter begins a line, Escape with nothing written stops.
 * What is written stays until the log has it, through a reload too; without a line to the server it is sent when the
 * line is back. During a turn a message waits in the queue. Whom it is for is asked only if there is a choice, and
 * stays chosen in this tab.
 */

import { html, nothing } from "lit";

import { Unreachable } from "../../client/api/errors.js";
import { newId } from "../../client/shared/ids.js";
import { loadSetting, saveSetting, tabStorage } from "../app/storage.js";
import { SessionElement } from "../ui/base-element.js";

/** Whether an agent does more than wait. */
export const hasWorkingAgent = (tree) => tree.waitingAgents().size < tree.open.size;

/** Who has joined a team, as a fold. */
class TeamNames {
  names = new Set();

  apply({ type, payload }) {
    if (type === "roster.join") this.names.add(payload.name);
  }
}

const UNSENT_KEY = "unsent";
const RETRY_MS = 2000; // between two attempts while only the stream gets through
const HAS_FIELD_SIZING = CSS.supports("field-sizing", "content");

export class Composer extends SessionElement {
  static properties = { sending: { state: true }, target: { state: true }, channel: { state: true } };
  #stopping = null;
  #cancelWait = null; // stops waiting for the line; null while nothing does
  #unsent = ""; // the key of the message that is on its way, and the message

  constructor() {
    super();
    this.#reset();
  }

  #reset() {
    const chosen = (name) => (this.session ? loadSetting(`${name} ${this.session.id}`, "") : "");
    Object.assign(this, { sending: false, target: chosen("to"), channel: chosen("in") });
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
    this.#field.value = tabStorage.read(this.#draftKey) ?? "";
    this.#fitHeight();
  }

  get #field() {
    return this.querySelector("textarea");
  }

  get #draftKey() {
    return `draft ${this.session.me.name} ${this.session.id}`; // another person may use this tab later
  }

  #onInput() {
    this.#fitHeight();
    tabStorage.write(this.#draftKey, this.#field.value);
  }

  /** As tall as its text, where the style sheet cannot say so: asking for a height lays out the whole page. */
  #fitHeight() {
    if (HAS_FIELD_SIZING) return;
    const field = this.#field;
    field.style.setProperty("height", "auto");
    field.style.setProperty("height", `${field.scrollHeight + 2}px`);
  }

  #onKeyDown(event) {
    if (event.isComposing || event.keyCode === 229) return; // Safari ends a composition with an Enter that says no
    if (event.key === "Escape" && !this.#field.value && this.session.isOpen) this.#stop();
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    this.#submit();
  }

  async #submit() {
    const [text, key] = [this.#field.value, this.#draftKey];
    if (!text.trim() || this.sending || !(await this.send(text))) return;
    tabStorage.remove(key);
    if (key !== this.#draftKey || this.#field.value !== text) return; // somebody went on meanwhile
    this.#field.value = "";
    this.#fitHeight();
  }

  /** Send a message; true when it is in the log: its event may come before the answer does. */
  async send(text) {
    if (this.sending) return false;
    const { session, target } = this;
    const to = { session: session.id, target: target || undefined, channel: this.#currentChannel };
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

  /** Post a message, again each time that the line is back; null if that is not wanted any more. */
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

  /** Wait until the session is followed again; false if the person does not want to wait, or goes elsewhere. */
  async #waitForConnection(session) {
    if (session !== this.session) return false;
    const isBack = await new Promise((resolve) => {
      const look = () => session.connection === "live" && resolve(true);
      const stop = session.watch(look);
      this.#cancelWait = () => {
        stop();
        resolve(false);
      };
      setTimeout(look, RETRY_MS); // it may never have been away for the stream
    });
    this.#cancelWait?.();
    this.#cancelWait = null;
    return isBack;
  }

  /** What was not answered and is sent again, after a reload too, is the same message: it may have arrived. */
  #idempotencyKey(text, to) {
    const message = JSON.stringify([text, to]);
    this.#unsent ||= tabStorage.read(UNSENT_KEY) ?? "";
    if (!this.#unsent.endsWith(message)) this.#unsent = newId() + message;
    tabStorage.write(UNSENT_KEY, this.#unsent);
    return this.#unsent.slice(0, -message.length);
  }

  /** Once, however often it is clicked before the server has heard of it. */
  #stop() {
    const stop = () => this.session.client.stop(this.session.id);
    this.#stopping ??= this.attempt(stop).finally(() => (this.#stopping = null));
  }

  /** Who can be addressed. */
  get #targets() {
    const { app, log } = this.session;
    if (app.process) return [...log.fold(TeamNames).names];
    return app.agents.length > 1 ? app.agents : [];
  }

  /** What becomes of a message now (docs/protocol.md, section 4): who waits goes on with it, who works does not. */
  get #messageEffect() {
    if (!this.session.isOpen) return "";
    return hasWorkingAgent(this.session.log.tree) ? " (it will be queued)" : " (cancels the open question)";
  }

  /** What one is in this session, and in every one. */
  get #roles() {
    const { me, log } = this.session;
    return [...(log.tree.members.get(me.name) ?? []), ...me.roles];
  }

  /** The channels one may speak in: an owner of the session and an operator of the server in all of them. */
  get #channels() {
    const roles = this.#roles;
    const isFree = roles.includes("owner") || roles.includes("operator");
    return this.session.app.channels.filter((name) => isFree || roles.includes(name));
  }

  /** The channel one speaks in if one does not say another; none if the server knows. */
  get #defaultChannel() {
    const roles = this.#roles;
    return this.#channels.find((name) => roles.includes(name)) ?? this.#channels[0];
  }

  /** The channel that was chosen, if one may still speak in it. */
  get #currentChannel() {
    return this.#channels.includes(this.channel) ? this.channel : this.#defaultChannel;
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
      <textarea rows="1" aria-label="Message" placeholder="Write a message${this.#messageEffect}" enterkeyhint="send"
        @input=${this.#onInput} @keydown=${this.#onKeyDown} ?readonly=${this.sending}></textarea>
      <div class="tools">
        ${drawSelect("To", this.#targets, this.target, "any agent", (name) => this.#saveChoice("to", "target", name))}
        ${drawSelect("In", channels.length > 1 ? channels : [], this.#currentChannel, null, (name) =>
          this.#saveChoice("in", "channel", name),
        )}
        <span class="gap"></span>
        <button type="button" ?disabled=${!isOpen} @click=${this.#stop}>Stop</button>
        <button class="strong" ?disabled=${this.sending}>Send</button>
      </div>
    </form>`;
  }
}

/** A promise that a message of ours with this text comes over the stream, and how to stop looking for it. */
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

/** A select, if there is something to select from. */
function drawSelect(label, names, chosen, none, choose) {
  if (!names.length) return nothing;
  return html`<label>${label} <select @change=${({ target }) => choose(target.value)}>
    ${none ? html`<option value="" ?selected=${!chosen}>${none}</option>` : nothing}
    ${names.map((name) => html`<option value=${name} ?selected=${name === chosen}>${name}</option>`)}
  </select></label>`;
}

customElements.define("tl-composer", Composer);
