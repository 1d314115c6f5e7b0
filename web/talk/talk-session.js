/**
 * What the page of a participant knows: the store of its session, who the person is, and what the session allows.
 *
 * `start` asks the server who the caller is and what the session is called, then follows it. While the server does not
 * answer it tries again; a refusal is in `error` and ends it. `onChange` is called after every change.
 */

import { Unreachable } from "../client/api/errors.js";
import { Client } from "../client/api/client.js";
import { baseUrl } from "../client/shared/urls.js";
import { SessionStore } from "../client/store/session-store.js";
import { isRefusal } from "../client/transport/connection.js";
import { blobUrl } from "../console/markdown/url-policy.js";
import { ViewSession } from "./view-session.js";

const FIRST_RETRY_MS = 2000;
const MAX_RETRY_MS = 30_000;
const CHECK_MS = 15_000; // of a closed session, while the page is visible
/** The text for a principal without a name, by the beginning of the principal. */
const UNNAMED = new Map([
  ["guest", "someone"],
  ["local", "host"], // the person who started the server
]);

export class TalkSession {
  me = null; // the principal of the person
  info = null; // the session as its member sees it
  store = null;
  error = null; // why the server refused
  isUnreachable = false;
  texts;
  #onChange;
  #signal = new AbortController();
  #client;
  #options;
  #retryMs = FIRST_RETRY_MS;
  #wake = null; // ends the wait for the next attempt
  #views = new Map(); // by event id: the sessions of views
  #images = new Map(); // by address: a promise of the one that the page loads
  #leave = null;
  #checkTimer = null;
  #wasClosed = false;

  constructor({ session, server, token, texts, language, locale = language, onChange }) {
    this.id = session;
    this.texts = texts;
    this.language = language;
    this.locale = locale;
    this.#onChange = onChange;
    this.#options = { url: server, signal: this.#signal.signal, ...(token && { token }) };
    this.#client = new Client(this.#options);
    this.hasToken = Boolean(token);
  }

  get client() {
    return this.store?.client ?? this.#client;
  }

  get snapshot() {
    return this.store?.getSnapshot() ?? null;
  }

  get title() {
    return this.snapshot?.title || this.info?.title || "";
  }

  get isClosed() {
    if (this.snapshot?.status === "closed" || this.info?.state === "closed") return true;
    return this.snapshot?.connection === "closed"; // of a session whose last event does not say it
  }

  /** Return who closed the conversation, and why. */
  get closedText() {
    const { texts } = this;
    const ending = this.snapshot?.ending ?? null;
    if (ending === null) return texts.closed;
    const words = this.isMe(ending.actor) ? texts.closedByYou : texts.closedBy(this.nameOf(ending.actor));
    return ending.reason ? `${words} ${texts.closeReason(ending.reason)}` : words;
  }

  async start() {
    while (!this.#signal.signal.aborted) {
      try {
        await this.#load();
        return;
      } catch (error) {
        if (this.#signal.signal.aborted) return;
        if (!(error instanceof Unreachable)) {
          this.error = error;
          this.#onChange();
          return;
        }
        this.isUnreachable = true;
        this.#onChange();
        await this.#rest();
      }
    }
  }

  async #load() {
    this.me = (await this.#client.me()).name;
    const { sessions } = await this.#client.listSessions({ session: this.id });
    this.info = sessions[0];
    this.isUnreachable = false;
    const share = this.hasToken ? {} : { share: this.me };
    this.store = new SessionStore({ ...this.#options, principal: this.me, session: this.id, ...share });
    this.#leave = this.store.subscribe(() => this.#update());
    document.addEventListener("visibilitychange", this.#checkClosed, { signal: this.#signal.signal });
    this.#checkTimer = setInterval(this.#checkClosed, CHECK_MS);
    this.#onChange();
  }

  /** A closed session has no stream that would end when it is deleted: ask for it. */
  #checkClosed = () => {
    if (this.isClosed && this.error === null && !document.hidden) this.refresh();
  };

  /** Wait for the next attempt, or until `tryNow`. */
  async #rest() {
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, this.#retryMs);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#retryMs = Math.min(2 * this.#retryMs, MAX_RETRY_MS);
  }

  /** Connect again at once. */
  tryNow() {
    this.#wake?.();
    dispatchEvent(new Event("online")); // open feeds listen for it
  }

  /** The server closes a session without an event: ask for its state when the stream was refused or a message. */
  async refresh() {
    try {
      const { sessions } = await this.client.listSessions({ session: this.id });
      this.info = sessions[0];
    } catch (error) {
      if (isRefusal(error.status)) this.error = error;
    }
    this.#notify();
  }

  #update() {
    const { error, connection } = this.snapshot;
    if (connection === "refused") this.error = error;
    if (connection === "live" && !this.isClosed) this.#retryFailed();
    this.#notify();
  }

  /** Tell a change; the end of the session closes its views. */
  #notify() {
    if (this.isClosed !== this.#wasClosed) for (const view of this.#views.values()) view.notify();
    this.#wasClosed = this.isClosed;
    this.#onChange();
  }

  /** Send messages again that failed because there was no connection. */
  #retryFailed() {
    const { messages, queue } = this.snapshot;
    for (const message of [...messages, ...queue]) {
      if (message.role === "user" && message.state === "failed" && message.error instanceof Unreachable)
        this.store.retry(message.id).catch(() => {});
    }
  }

  /** Return the session of a view for the elements of views, up to date. */
  viewSession(part, channel) {
    let view = this.#views.get(part.event_id);
    if (view === undefined) this.#views.set(part.event_id, (view = new ViewSession(this)));
    view.update(part, channel);
    return view;
  }

  /** Return the address of a file of the session. */
  addressOf(src) {
    return new URL(src.replace(/^\//, ""), baseUrl(this.#options.url)).href;
  }

  /** Return the address that this page loads for an image of a text or a view: an image sends no token. */
  imageAddress(address) {
    let image = this.#images.get(address);
    if (image === undefined) this.#images.set(address, (image = this.#findImage(address)));
    return image;
  }

  async #findImage(address) {
    if (blobUrl(address) === null) return address;
    if (!this.hasToken) return this.addressOf(address);
    return URL.createObjectURL(await this.client.readFile(address));
  }

  /** Return the arguments of a call, which members who see internals have. */
  argsOf(callId) {
    return this.snapshot.pending.find((call) => call.call_id === callId)?.args ?? null;
  }

  isMe(principal) {
    return principal !== null && principal === this.me;
  }

  /** Return the name of a principal for people; null if it has none. */
  nameOf(principal) {
    if (principal === null) return null;
    const member = this.snapshot?.members.find((each) => each.principal === principal);
    return member?.name ?? this.texts[UNNAMED.get(principal.replace(/_.*/, ""))] ?? principal;
  }

  close() {
    this.#signal.abort();
    this.#wake?.();
    clearInterval(this.#checkTimer);
    this.#leave?.();
    this.store?.close();
    for (const image of this.#images.values()) image.then((address) => URL.revokeObjectURL(address)).catch(() => {});
  }
}
