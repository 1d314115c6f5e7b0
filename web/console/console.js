/**
 * `<tl-console>`: the whole page. It knows who is signed in, which applications there are and which session is
 * open; the address says where the person is (`place.js`). Everything else is in the elements it holds.
 *
 * All requests name the person who opened the page, so that the server refuses them (412) when another tab has signed in
 * as another. Then the page shows nothing of the session any more and says who is signed in.
 */

import { html, nothing } from "lit";

import { Client } from "../client/client.js";
import { NotSignedIn, OtherPrincipal, Unreachable } from "../client/errors.js";
import { Names } from "../client/names.js";
import "./chat.js";
import { Element } from "./element.js";
import "./inspector.js";
import { go, here, onPlainClick } from "./place.js";
import { problemOf } from "./problems.js";
import { Session } from "./session.js";
import "./sessions.js";
import { nextTheme, theme } from "./theme.js";

/** The words for the line to the server, and how they look. */
const LINES = {
  connecting: ["Connecting", "busy"],
  "catching-up": ["Catching up", "busy"],
  live: ["Live", "good"],
  reconnecting: ["Reconnecting", "bad"],
  reset: ["Reset: reading again", "busy"],
  closed: ["Closed", "calm"],
  refused: ["Not open", "bad"],
};
const NO = { 403: "You are no member of this session.", 404: "There is no such session." };
const UNKNOWN = { name: "", title: "", guide: "", tries: [], types: [], agents: [], channels: [], process: false };
const SCREENS = [
  ["sessions", "Sessions"],
  ["chat", "Chat"],
  ["inspector", "Inspect"],
];
const AT_HOME = [
  ["sessions", "Sessions"],
  ["chat", "Start"],
];
const ANSWER_MS = 300; // a server that takes longer is waited for on the screen
const RESET = "This session's log was replaced: what is shown is the new one.";
const SHOWN_MS = 10_000; // how long a problem stays on the screen

export class Console extends Element {
  static properties = {
    me: { state: true },
    apps: { state: true },
    sessions: { state: true },
    more: { state: true },
    session: { state: true },
    problems: { state: true },
    screen: { state: true },
    away: { state: true },
    signedOut: { state: true },
    successor: { state: true },
  };
  #client = null;
  #channel = new BroadcastChannel("turnlog signed in"); // a hint to ask the server, which knows
  #stop = null;
  #opening = Promise.resolve();
  #stand = "";
  #starting = false;
  #listing = null;
  #shown = 1; // at least so many sessions are listed, in whole pages
  #seq = null; // the event that was asked for last

  constructor() {
    super();
    Object.assign(this, { me: null, apps: [], sessions: [], session: undefined, problems: [], screen: "chat" });
    Object.assign(this, { more: false, away: null, signedOut: false, successor: null });
  }

  connectedCallback() {
    super.connectedCallback();
    addEventListener("popstate", () => this.#follow());
    addEventListener("keydown", (event) => this.#key(event));
    addEventListener("beforeprint", () => this.querySelector("tl-chat tl-flow")?.showAll()); // paper cannot scroll
    addEventListener("show-in-chat", () => (this.screen = "chat"));
    addEventListener("show-event", () => (this.screen = "inspector"));
    this.addEventListener("problem", ({ detail }) => this.#tell(detail));
    this.addEventListener("changed", () => this.#refresh());
    document.addEventListener("visibilitychange", () => document.hidden || this.me === null || this.#refresh());
    this.#channel.onmessage = ({ data }) => this.me === null || data === this.me.name || this.#refresh();
    this.addEventListener("try", ({ detail }) => this.#write(detail));
    this.#begin();
  }

  async #begin() {
    try {
      this.#client = new Client(); // as the cookie says
      const asked = [this.#client.me(), this.#client.apps(), this.#pages()];
      [this.me, this.apps, this.sessions] = await Promise.all(asked);
      this.#client = new Client({ principal: this.me.name });
      this.#channel.postMessage(this.me.name);
      this.signedOut = false;
    } catch (error) {
      if (error instanceof NotSignedIn) this.signedOut = true;
      else this.away = problemOf(error);
      return;
    }
    this.#follow();
  }

  async #list() {
    try {
      this.sessions = await this.#pages();
    } catch (error) {
      if (!(error instanceof Unreachable)) this.#tell(error); // the bar says that already
    }
  }

  /** The sessions of the pages that are shown, and the session that is open, which may be on a later one. */
  async #pages() {
    const found = [];
    let next;
    do {
      const page = await this.#client.listSessions({ after: next });
      found.push(...page.sessions);
      next = page.next;
    } while (next !== undefined && found.length < this.#shown);
    this.more = next !== undefined;
    const { session } = here();
    if (!this.more || session === null || found.some(({ session_id }) => session_id === session)) return found;
    const { sessions } = await this.#client.listSessions({ session }).catch(() => ({ sessions: [] }));
    return [...found, ...sessions];
  }

  #showMore() {
    this.#shown = this.sessions.length + 1;
    this.#refresh();
  }

  /** One list at a time: a late answer must not take the place of a newer one. */
  #refresh() {
    this.#listing ??= this.#list().finally(() => (this.#listing = null));
    return this.#listing;
  }

  /** Be where the address says. One after the other: a second step waits for the first. */
  #follow() {
    this.#opening = this.#opening.then(() => this.#arrive()).catch((error) => this.#tell(error));
  }

  async #arrive() {
    const place = here();
    if (place.session === null && this.me.session) return go({ ...place, session: this.me.session }, { replace: true });
    if (place.session === null) {
      const app = place.app ?? (this.apps.length === 1 ? this.apps[0].name : null);
      const session = app && (await this.#recent(app));
      if (!session) return this.#open(null);
      if (here().session === null) go({ panel: place.panel, session }, { replace: true });
      return undefined;
    }
    if (!this.sessions.some(({ session_id }) => session_id === place.session)) await this.#list();
    if (place.session !== this.session?.id) await this.#open(place.session);
    if (place.seq !== null && place.seq !== this.#seq) this.screen = "inspector";
    this.#seq = place.seq;
    this.requestUpdate();
  }

  /** The session of an application that was active last, or a new one; none if the server makes none. */
  async #recent(app) {
    const known = this.sessions.find((session) => session.app === app && session.state !== "closed");
    if (known || !this.me.may_create_sessions) return known?.session_id;
    return this.#made(app).catch((error) => void this.#tell(error));
  }

  async #made(app) {
    const session = await this.#client.createSession({ app });
    await this.#list();
    return session;
  }

  /** The log is asked for before anything is drawn: it comes while the page is. */
  async #open(id) {
    this.#stop?.();
    this.session?.close();
    const session = id === null ? null : this.#session(id);
    await Promise.race([session?.answered, new Promise((resolve) => setTimeout(resolve, ANSWER_MS))]);
    this.session = session;
    this.#stop = session?.watch(() => this.#heed());
    this.screen = "chat";
  }

  /** Draw, and ask for the list again when this session stands differently in it. */
  #heed() {
    this.requestUpdate();
    const { isOpen, record, refusal } = this.session;
    if (refusal instanceof NotSignedIn || refusal instanceof OtherPrincipal) return this.#tell(refusal);
    const { waiting, flow, title } = record.conversation;
    const stand = `${isOpen} ${waiting.size} ${flow.entries.length > 0} ${title}`;
    if (stand === this.#stand) return;
    this.#stand = stand;
    this.#refresh();
  }

  #session(id) {
    const known = this.sessions.find(({ session_id }) => session_id === id);
    const app = this.apps.find(({ name }) => name === known?.app) ?? UNKNOWN;
    const onReset = () => {
      this.#tell({ message: RESET });
      this.#refresh();
    };
    // The list is as old as the page when a person goes on to another session.
    const readLast = async () => (this.session === undefined && known ? (known.last ?? null) : this.#lastOf(id));
    return new Session({ id, app, client: this.#client, me: this.me, readLast, onReset });
  }

  async #lastOf(session) {
    const { sessions } = await this.#client.listSessions({ session }).catch(() => ({ sessions: [] }));
    return sessions[0]?.last ?? null;
  }

  async #start(app) {
    if (this.#starting) return;
    this.#starting = true;
    try {
      go({ session: await this.#made(app), panel: here().panel });
    } catch (error) {
      this.#tell(error);
    } finally {
      this.#starting = false;
    }
  }

  /** Say what went wrong; whoever is not signed in any more can do something about it. */
  #tell(error) {
    if (error instanceof NotSignedIn) return this.#leave({ signedOut: true });
    if (error instanceof OtherPrincipal) return void this.#giveWay();
    const problem = problemOf(error);
    this.problems = [...this.problems, problem];
    setTimeout(() => problem.isRead || this.#forget(problem), SHOWN_MS);
  }

  /** Show and follow nothing any more: who reads now may be another person. */
  #leave(why) {
    this.#stop?.();
    this.session?.close();
    Object.assign(this, { session: undefined, sessions: [], problems: [], ...why });
  }

  async #giveWay() {
    this.#leave({ successor: "another person" });
    try {
      this.successor = (await new Client().me()).name;
    } catch (error) {
      if (error instanceof NotSignedIn) Object.assign(this, { signedOut: true, successor: null });
    }
  }

  #forget(problem) {
    this.problems = this.problems.filter((each) => each !== problem);
  }

  /** A problem whose details are open stays until they are folded again. */
  #problem(problem) {
    const toggled = ({ target }) => {
      if (problem.isRead && !target.open) this.#forget(problem);
      problem.isRead = target.open;
    };
    return html`<div>${problem.words} ${
      problem.detail === null
        ? nothing
        : html`<details @toggle=${toggled}>
      <summary>Details</summary><p>${problem.detail}</p></details>`
    }</div>`;
  }

  /** Put a message where it can be sent. */
  async #write(text) {
    this.screen = "chat";
    await this.updateComplete;
    const field = this.querySelector("tl-composer textarea");
    field.value = [field.value.trimEnd(), text].filter(Boolean).join("\n\n"); // what is written there stays
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.focus();
  }

  /** The key that works everywhere: `/` goes to where one writes. */
  #key(event) {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.querySelector("tl-composer textarea")?.focus();
  }

  /** The open session as the list has it. */
  get #info() {
    return this.sessions.find(({ session_id }) => session_id === this.session?.id);
  }

  /** Whether a person has to answer something, here or in another session. */
  get #waits() {
    return this.session?.record.conversation.waiting.size > 0 || this.sessions.some(({ state }) => state === "waiting");
  }

  updated() {
    const title = this.#info?.title;
    document.title = `${this.me && this.#waits ? "● " : ""}${title ? `${title} · ` : ""}Turnlog`;
  }

  async #share() {
    await import("./members.js");
    this.querySelector("tl-members").show();
  }

  async #signOut() {
    try {
      await this.#client.signOut();
      this.#leave({ signedOut: true });
      this.#channel.postMessage(null);
    } catch (error) {
      this.#tell(error);
    }
  }

  render() {
    if (this.signedOut) return this.#signIn();
    if (this.successor) return this.#succeeded();
    if (this.away) return this.#lost();
    if (this.me === null) return html`<main class="blank"><p role="status">Connecting to the server</p></main>`;
    return html`
      ${this.#header()}
      <div class="columns" data-screen=${this.screen} ?data-offline=${this.session?.connection === "reconnecting"}>
        <tl-sessions .apps=${this.apps} .sessions=${this.sessions} .current=${this.session?.id}
          .mayCreate=${this.me.may_create_sessions} .me=${this.#name} @sign-out=${this.#signOut}
          .client=${this.#client} .more=${this.more} @more=${() => this.#showMore()}
          @start=${({ detail }) => this.#start(detail)}></tl-sessions>
        <main>${this.session ? this.#opened() : this.session === null ? this.#home() : nothing}</main>
      </div>
      ${this.#tabs()}
      <div class="problems" role="alert">${this.problems.map((problem) => this.#problem(problem))}</div>`;
  }

  #signIn() {
    import("./sign-in.js");
    return html`<tl-sign-in @signed-in=${() => this.#begin()}></tl-sign-in>`;
  }

  #home() {
    import("./home.js");
    return html`<tl-home .apps=${this.apps} .client=${this.#client} .mayCreate=${this.me.may_create_sessions} @start=${({ detail }) => this.#start(detail)}></tl-home>`;
  }

  #succeeded() {
    return html`<main class="blank">
      <h1>Turnlog</h1>
      <p role="alert">You are signed in as ${this.successor} now.</p>
      <button @click=${() => location.reload()}>Reload</button>
    </main>`;
  }

  #lost() {
    return html`<main class="blank">
      <h1>Turnlog</h1>
      <p role="alert">${this.away.words}</p>
      ${this.away.detail === null ? nothing : html`<details><summary>Details</summary><p>${this.away.detail}</p></details>`}
      <button @click=${() => {
        this.away = null;
        this.#begin();
      }}>Try again</button>
    </main>`;
  }

  #opened() {
    const { refusal } = this.session;
    const why = refusal && (NO[refusal.status] ?? `This session cannot be read: ${refusal.message}`);
    if (why) return html`<p class="blank">${why}</p>`;
    return html`
      <tl-chat .session=${this.session}></tl-chat>
      <tl-inspector .session=${this.session} .screen=${this.screen}></tl-inspector>`;
  }

  /** What the person is called here: guests have a name in their session. */
  get #name() {
    const { name } = this.me;
    return this.session?.record.fold(Names).of(name) ?? name;
  }

  #header() {
    const [words, look] = LINES[this.session?.connection] ?? [];
    return html`<header class="bar">
      <h1><a href="?" @click=${onPlainClick(() => go({}))}>Turnlog</a></h1>
      ${words ? html`<p class="line ${look}" role="status" id="connection">${words}</p>` : nothing}
      ${this.session ? html`<tl-totals .session=${this.session}></tl-totals>` : nothing}
      <span class="gap"></span>
      ${
        this.session && !this.session.refusal
          ? html`<button @click=${this.#share}>Share</button>
        <tl-members .session=${this.session} .invites=${this.#info?.invites ?? []}></tl-members>`
          : nothing
      }
      <button class="plain" @click=${() => {
        nextTheme();
        this.requestUpdate();
      }}
        title="Light, dark, or as this machine is">Theme: ${theme()}</button>
    </header>`;
  }

  /** On a phone one column is shown at a time. */
  #tabs() {
    const screens = this.session ? SCREENS : AT_HOME;
    return html`<nav class="screens" aria-label="Screens">${screens.map(
      ([name, title]) => html`
      <button aria-current=${this.screen === name ? "page" : nothing} @click=${() => (this.screen = name)}>
        ${title}</button>`,
    )}</nav>`;
  }
}

customElements.define("tl-console", Console);
