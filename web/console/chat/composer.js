/**
 * `<tl-composer>`: where a person writes. Enter sends, Shift+Enter begins a line, Escape with nothing written stops.
 * What is written stays until the log has it, through a reload too; without a line to the server it is sent when the
 * line is back. During a turn a message waits in the queue. Whom it is for is asked only if there is a choice, and
 * stays chosen in this tab.
 */

import { html, nothing } from "lit";

import { Unreachable } from "../../client/api/errors.js";
import { newId } from "../../client/shared/ids.js";
import { SessionElement } from "../ui/base-element.js";
import { remember, remembered } from "../app/settings.js";
import { tabStorage } from "../app/storage.js";

/** Whether an agent does more than wait. */
export const works = (tree) => tree.waitingAgents().size < tree.open.size;

/** Who has joined a team, as a fold. */
class Names {
  names = new Set();

  apply({ type, payload }) {
    if (type === "roster.join") this.names.add(payload.name);
  }
}

const UNSENT = "unsent";
const AGAIN_MS = 2000; // between two attempts while only the stream gets through
const SIZED = CSS.supports("field-sizing", "content");

export class Composer extends SessionElement {
  static properties = { sending: { state: true }, target: { state: true }, channel: { state: true } };
  #stopping = null;
  #giveUp = null; // stops waiting for the line; null while nothing does
  #unsent = ""; // the key of the message that is on its way, and the message

  constructor() {
    super();
    this.#begin();
  }

  #begin() {
    const chosen = (name) => (this.session ? remembered(`${name} ${this.session.id}`, "") : "");
    Object.assign(this, { sending: false, target: chosen("to"), channel: chosen("in") });
    this.#stopping = null;
    this.#giveUp?.();
  }

  #choose(name, property, value) {
    this[property] = value;
    remember(`${name} ${this.session.id}`, value);
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (changed.has("session")) this.#begin();
  }

  updated(changed) {
    if (!changed.has("session")) return;
    this.#field.value = tabStorage.read(this.#key) ?? "";
    this.#grow();
  }

  get #field() {
    return this.querySelector("textarea");
  }

  get #key() {
    return `draft ${this.session.me.name} ${this.session.id}`; // another person may use this tab later
  }

  #written() {
    this.#grow();
    tabStorage.write(this.#key, this.#field.value);
  }

  /** As tall as its text, where the style sheet cannot say so: asking for a height lays out the whole page. */
  #grow() {
    if (SIZED) return;
    const field = this.#field;
    field.style.setProperty("height", "auto");
    field.style.setProperty("height", `${field.scrollHeight + 2}px`);
  }

  #pressed(event) {
    if (event.isComposing || event.keyCode === 229) return; // Safari ends a composition with an Enter that says no
    if (event.key === "Escape" && !this.#field.value && this.session.isOpen) this.#stop();
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    this.#submit();
  }

  async #submit() {
    const [text, key] = [this.#field.value, this.#key];
    if (!text.trim() || this.sending || !(await this.send(text))) return;
    tabStorage.remove(key);
    if (key !== this.#key || this.#field.value !== text) return; // somebody went on meanwhile
    this.#field.value = "";
    this.#grow();
  }

  /** Send a message; true when it is in the log: its event may come before the answer does. */
  async send(text) {
    if (this.sending) return false;
    const { session, target } = this;
    const to = { session: session.id, target: target || undefined, channel: this.#chosen };
    const [arrived, ignore] = arrival(session, text);
    this.sending = true;
    const sent = await this.attempt(() => Promise.race([arrived, this.#post(session, text, to)]));
    ignore();
    if (session === this.session) this.sending = false;
    if (!sent) return false;
    this.#unsent = "";
    tabStorage.remove(UNSENT);
    this.dispatchEvent(new CustomEvent("sent", { bubbles: true }));
    return true;
  }

  /** Post a message, again each time that the line is back; null if that is not wanted any more. */
  async #post(session, text, to) {
    const key = this.#keyOf(text, to);
    for (;;) {
      try {
        return await session.client.send(text, { ...to, key });
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        if (!(await this.#line(session))) return null;
      }
    }
  }

  /** Wait until the session is followed again; false if the person does not want to wait, or goes elsewhere. */
  async #line(session) {
    if (session !== this.session) return false;
    const isBack = await new Promise((resolve) => {
      const look = () => session.connection === "live" && resolve(true);
      const stop = session.watch(look);
      this.#giveUp = () => {
        stop();
        resolve(false);
      };
      setTimeout(look, AGAIN_MS); // it may never have been away for the stream
    });
    this.#giveUp?.();
    this.#giveUp = null;
    return isBack;
  }

  /** What was not answered and is sent again, after a reload too, is the same message: it may have arrived. */
  #keyOf(text, to) {
    const message = JSON.stringify([text, to]);
    this.#unsent ||= tabStorage.read(UNSENT) ?? "";
    if (!this.#unsent.endsWith(message)) this.#unsent = newId() + message;
    tabStorage.write(UNSENT, this.#unsent);
    return this.#unsent.slice(0, -message.length);
  }

  /** Once, however often it is clicked before the server has heard of it. */
  #stop() {
    const stop = () => this.session.client.stop(this.session.id);
    this.#stopping ??= this.attempt(stop).finally(() => (this.#stopping = null));
  }

  /** Who can be addressed. */
  get #targets() {
    const { app, record } = this.session;
    if (app.process) return [...record.fold(Names).names];
    return app.agents.length > 1 ? app.agents : [];
  }

  /** What becomes of a message now (docs/protocol.md, section 4): who waits goes on with it, who works does not. */
  get #fate() {
    if (!this.session.isOpen) return "";
    return works(this.session.record.tree) ? ": it will be queued" : ": it cancels what waits";
  }

  /** What one is in this session, and in every one. */
  get #roles() {
    const { me, record } = this.session;
    return [...(record.tree.members.get(me.name) ?? []), ...me.roles];
  }

  /** The channels one may speak in: an owner of the session and an operator of the server in all of them. */
  get #channels() {
    const roles = this.#roles;
    const isFree = roles.includes("owner") || roles.includes("operator");
    return this.session.app.channels.filter((name) => isFree || roles.includes(name));
  }

  /** The channel one speaks in if one does not say another; none if the server knows. */
  get #own() {
    const roles = this.#roles;
    return this.#channels.find((name) => roles.includes(name)) ?? this.#channels[0];
  }

  /** The channel that was chosen, if one may still speak in it. */
  get #chosen() {
    return this.#channels.includes(this.channel) ? this.channel : this.#own;
  }

  #offline() {
    if (!this.sending || this.session.connection === "live") return nothing;
    return html`<p class="offline" role="status">No connection. Your message is sent when the line is back.
      ${this.#giveUp ? html`<button type="button" @click=${() => this.#giveUp?.()}>Do not send</button>` : nothing}</p>`;
  }

  render() {
    const [{ isOpen }, channels] = [this.session, this.#channels];
    return html`${this.#offline()}<form class="composer" @submit=${(event) => {
      event.preventDefault();
      this.#submit();
    }}>
      <textarea rows="1" aria-label="Message" placeholder="Write a message${this.#fate}" enterkeyhint="send"
        @input=${this.#written} @keydown=${this.#pressed} ?readonly=${this.sending}></textarea>
      <div class="tools">
        ${choice("To", this.#targets, this.target, "anybody", (name) => this.#choose("to", "target", name))}
        ${choice("In", channels.length > 1 ? channels : [], this.#chosen, null, (name) =>
          this.#choose("in", "channel", name),
        )}
        <span class="gap"></span>
        <button type="button" ?disabled=${!isOpen} @click=${this.#stop}>Stop</button>
        <button class="strong" ?disabled=${this.sending}>Send</button>
      </div>
    </form>`;
  }
}

/** A promise that a message of ours with this text comes over the stream, and how to stop looking for it. */
function arrival(session, text) {
  const from = session.record.events.length;
  const isOurs = ({ type, actor, payload }) =>
    type === "ui.message" && actor === session.me.name && text.trim().endsWith(payload.text.trim());
  let stop;
  const arrived = new Promise((resolve) => {
    stop = session.watch(() => session.record.events.slice(from).some(isOurs) && resolve(true));
  });
  return [arrived, stop];
}

/** A select, if there is something to select from. */
function choice(label, names, chosen, none, choose) {
  if (!names.length) return nothing;
  return html`<label>${label} <select @change=${({ target }) => choose(target.value)}>
    ${none ? html`<option value="" ?selected=${!chosen}>${none}</option>` : nothing}
    ${names.map((name) => html`<option value=${name} ?selected=${name === chosen}>${name}</option>`)}
  </select></label>`;
}

customElements.define("tl-composer", Composer);
