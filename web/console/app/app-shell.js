/**
 * `<tl-console>`: the whole page. It loads the signed-in person, the applications and the list of sessions, and opens
 * the session of the route (`router.js`).
 *
 * All requests name the person who opened the page, so that the server refuses them (412) when another tab signs in as
 * another person. Then the page closes the session and shows who is signed in.
 */

import { html, nothing } from "lit";

import { Client } from "../../client/api/client.js";
import { NotSignedIn, OtherPrincipal, Unreachable } from "../../client/api/errors.js";
import "../chat/chat.js";
import "../panels/inspector.js";
import { Session } from "../store/session.js";
import { ConsoleElement } from "../ui/base-element.js";
import { errorMessage } from "./error-messages.js";
import { currentRoute, navigate, onPlainClick } from "./router.js";
import "./session-list.js";
import { currentTheme, switchTheme } from "./theme.js";

/** By state of the connection: its label and its class. */
const CONNECTION_LABELS = {
  connecting: ["Connecting", "work"],
  "catching-up": ["Catching up", "work"],
  live: ["Live", "good"],
  reconnecting: ["Reconnecting", "bad"],
  reset: ["Reset: reading again", "work"],
  closed: ["Closed", "calm"],
  refused: ["No access", "bad"],
};
const REFUSAL_MESSAGES = { 403: "You do not have access to this session.", 404: "There is no such session." };
const UNKNOWN_APP = { name: "", title: "", guide: "", tries: [], types: [], agents: [], channels: [], process: false };
const SCREENS = [
  ["sessions", "Sessions"],
  ["chat", "Chat"],
  ["inspector", "Inspect"],
];
const HOME_SCREENS = [
  ["sessions", "Sessions"],
  ["chat", "Start"],
];
const MAX_BLANK_MS = 300; // a slower server is waited for with the page drawn
const RESET_MESSAGE = "The session's log was replaced. The page shows the new one.";
const MAX_FOUND = 50; // sessions of a search: a person refines it then
const ERROR_SHOWN_MS = 10_000;

export class AppShell extends ConsoleElement {
  static properties = {
    me: { state: true },
    apps: { state: true },
    sessions: { state: true },
    hasMore: { state: true },
    found: { state: true },
    session: { state: true },
    problems: { state: true },
    screen: { state: true },
    loadError: { state: true },
    signedOut: { state: true },
    otherPrincipal: { state: true },
  };
  #client = null;
  #channel = new BroadcastChannel("turnlog signed in"); // another tab has signed in or out: ask the server who
  #unwatch = null;
  #navigation = Promise.resolve();
  #listedState = "";
  #starting = false;
  #loadingSessions = null;
  #minListed = 1; // whole pages are listed until there are so many sessions
  #search = ""; // the text that titles have
  #shownSeq = null; // the event of the last route

  constructor() {
    super();
    Object.assign(this, { me: null, apps: [], sessions: [], session: undefined, problems: [], screen: "chat" });
    Object.assign(this, { hasMore: false, found: null, loadError: null, signedOut: false, otherPrincipal: null });
  }

  connectedCallback() {
    super.connectedCallback();
    addEventListener("popstate", () => this.#onRouteChange());
    addEventListener("keydown", (event) => this.#onKeyDown(event));
    addEventListener("beforeprint", () => this.querySelector("tl-chat tl-flow")?.showAll()); // paper cannot scroll
    addEventListener("show-in-chat", () => (this.screen = "chat"));
    addEventListener("show-event", () => (this.screen = "inspector"));
    this.addEventListener("error-message", ({ detail }) => this.#showError(detail));
    this.addEventListener("sessions-changed", () => this.#refresh());
    document.addEventListener("visibilitychange", () => document.hidden || this.me === null || this.#refresh());
    this.#channel.onmessage = ({ data }) => this.me === null || data === this.me.name || this.#refresh();
    this.addEventListener("suggest", ({ detail }) => this.#prefillMessage(detail));
    this.#load();
  }

  async #load() {
    try {
      this.#client = new Client(); // the principal is not known yet
      const requests = [this.#client.me(), this.#client.apps(), this.#fetchSessionPages()];
      [this.me, this.apps, this.sessions] = await Promise.all(requests);
      this.#client = new Client({ principal: this.me.name });
      this.#channel.postMessage(this.me.name);
      this.signedOut = false;
    } catch (error) {
      if (error instanceof NotSignedIn) this.signedOut = true;
      else this.loadError = errorMessage(error);
      return;
    }
    this.#onRouteChange();
  }

  async #loadSessions() {
    try {
      this.sessions = await this.#fetchSessionPages();
      // a closed session has no stream that would end when it is deleted
      if (this.#isClosed && !this.#info && !this.session.refusal) this.session.reconnect();
    } catch (error) {
      if (!(error instanceof Unreachable)) this.#showError(error); // the bar says that already
    }
  }

  /** Fetch the listed pages of sessions, and the open session, which may be on a later page. */
  async #fetchSessionPages() {
    const listed = [];
    let next;
    do {
      const page = await this.#client.listSessions({ after: next });
      listed.push(...page.sessions);
      next = page.next;
    } while (next !== undefined && listed.length < this.#minListed);
    this.hasMore = next !== undefined;
    const { session } = currentRoute();
    if (!this.hasMore || session === null || listed.some(({ session_id }) => session_id === session)) return listed;
    const { sessions } = await this.#client.listSessions({ session }).catch(() => ({ sessions: [] }));
    return [...listed, ...sessions];
  }

  #showMore() {
    this.#minListed = this.sessions.length + 1;
    this.#refresh();
  }

  /** Find the sessions whose titles have a text; an empty text shows all again. */
  async #find(search) {
    this.#search = search;
    if (search === "") {
      this.found = null;
      return;
    }
    try {
      const found = await this.#fetchFound(search);
      if (search === this.#search) this.found = found;
    } catch (error) {
      this.#showError(error);
    }
  }

  async #fetchFound(search) {
    const found = [];
    let next;
    do {
      const page = await this.#client.listSessions({ search, after: next });
      found.push(...page.sessions);
      next = page.next;
    } while (next !== undefined && found.length < MAX_FOUND && search === this.#search);
    return found;
  }

  /** Load the list, one request at a time: a late response must not replace a newer one. */
  #refresh() {
    this.#loadingSessions ??= this.#loadSessions().finally(() => (this.#loadingSessions = null));
    return this.#loadingSessions;
  }

  /** Open the current route after the one before it has been opened. */
  #onRouteChange() {
    this.#navigation = this.#navigation.then(() => this.#openRoute()).catch((error) => this.#showError(error));
  }

  async #openRoute() {
    const route = currentRoute();
    // a guest who comes without an address belongs to the page of participants
    if (route.session === null && this.me.session) return location.replace(`talk/${this.me.session}`);
    if (route.session === null) {
      const app = route.app ?? (this.apps.length === 1 ? this.apps[0].name : null);
      const session = app && (await this.#recentSession(app));
      if (!session) return this.#open(null);
      if (currentRoute().session === null) navigate({ panel: route.panel, session }, { replace: true });
      return undefined;
    }
    if (!this.sessions.some(({ session_id }) => session_id === route.session)) await this.#loadSessions();
    if (route.session !== this.session?.id) await this.#open(route.session);
    if (route.seq !== null && route.seq !== this.#shownSeq) this.screen = "inspector";
    this.#shownSeq = route.seq;
    this.requestUpdate();
  }

  /** Return the application's last active session or a new one; undefined if this person may not create one. */
  async #recentSession(app) {
    const known = this.sessions.find((session) => session.app === app && session.state !== "closed");
    if (known || !this.me.may_create_sessions) return known?.session_id;
    return this.#createSession(app).catch((error) => void this.#showError(error));
  }

  async #createSession(app) {
    const session = await this.#client.createSession({ app });
    await this.#loadSessions();
    return session;
  }

  /** Open a session, or none with null. The request for the log goes out before the page is drawn. */
  async #open(id) {
    this.#unwatch?.();
    this.session?.close();
    const session = id === null ? null : this.#connectSession(id);
    await Promise.race([session?.firstAnswer, new Promise((resolve) => setTimeout(resolve, MAX_BLANK_MS))]);
    this.session = session;
    this.#unwatch = session?.watch(() => this.#onSessionChange());
    this.screen = "chat";
  }

  /** Redraw, and reload the list when this session's row in it has changed. */
  #onSessionChange() {
    this.requestUpdate();
    const { isOpen, snapshot, refusal } = this.session;
    if (refusal instanceof NotSignedIn || refusal instanceof OtherPrincipal) return this.#showError(refusal);
    const { pending, messages, title } = snapshot;
    const stand = `${isOpen} ${pending.length} ${messages.length > 0} ${title} ${this.session.hasEnded} ${refusal !== null}`;
    if (stand === this.#listedState) return;
    this.#listedState = stand;
    this.#refresh();
  }

  #connectSession(id) {
    const known = this.sessions.find(({ session_id }) => session_id === id);
    const app = this.apps.find(({ name }) => name === known?.app) ?? UNKNOWN_APP;
    const onReset = () => {
      this.#showError({ message: RESET_MESSAGE });
      this.#refresh();
    };
    return new Session({ id, app, client: this.#client, me: this.me, onReset });
  }

  async #startSession(app) {
    if (this.#starting) return;
    this.#starting = true;
    try {
      navigate({ session: await this.#createSession(app), panel: currentRoute().panel });
    } catch (error) {
      this.#showError(error);
    } finally {
      this.#starting = false;
    }
  }

  /** Show an error for a while; a person who is no longer signed in gets the sign-in page. */
  #showError(error) {
    if (error instanceof NotSignedIn) return this.#closeSession({ signedOut: true });
    if (error instanceof OtherPrincipal) return void this.#onOtherPrincipal();
    const problem = errorMessage(error);
    this.problems = [...this.problems, problem];
    setTimeout(() => problem.isRead || this.#removeError(problem), ERROR_SHOWN_MS);
  }

  /** Close the session and hide everything: another person may be at the screen. */
  #closeSession(why) {
    this.#unwatch?.();
    this.session?.close();
    Object.assign(this, { session: undefined, sessions: [], problems: [], ...why });
  }

  async #onOtherPrincipal() {
    this.#closeSession({ otherPrincipal: "another person" });
    try {
      this.otherPrincipal = (await new Client().me()).name;
    } catch (error) {
      if (error instanceof NotSignedIn) Object.assign(this, { signedOut: true, otherPrincipal: null });
    }
  }

  #removeError(problem) {
    this.problems = this.problems.filter((each) => each !== problem);
  }

  /** Draw an error. While its details are open it stays. */
  #drawError(problem) {
    const toggled = ({ target }) => {
      if (problem.isRead && !target.open) this.#removeError(problem);
      problem.isRead = target.open;
    };
    return html`<div>${problem.words} ${
      problem.detail === null
        ? nothing
        : html`<details @toggle=${toggled}>
      <summary>Details</summary><p>${problem.detail}</p></details>`
    }</div>`;
  }

  /** Append a text to the composer, unsent. */
  async #prefillMessage(text) {
    this.screen = "chat";
    await this.updateComplete;
    this.querySelector("tl-composer").prefill(text);
  }

  /** `/` focuses the composer from anywhere. */
  #onKeyDown(event) {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.querySelector("tl-composer")?.focusInput();
  }

  /** The row of the open session in the list. */
  get #info() {
    return this.sessions.find(({ session_id }) => session_id === this.session?.id);
  }

  /** The last event says it before the list is loaded again; without such an event the end of the stream does. */
  get #isClosed() {
    const { status, connection } = this.session?.snapshot ?? {};
    return this.#info?.state === "closed" || status === "closed" || connection === "closed";
  }

  /** Whether any listed session needs this person's answer. */
  get #needsAnswer() {
    return this.session?.snapshot.pending.length > 0 || this.sessions.some(({ state }) => state === "waiting");
  }

  updated() {
    const title = this.#info?.title;
    document.title = `${this.me && this.#needsAnswer ? "● " : ""}${title ? `${title} · ` : ""}Turnlog`;
  }

  async #openMembers() {
    await import("./members.js");
    this.querySelector("tl-members").show();
  }

  async #openSettings() {
    await import("./session-settings.js");
    this.querySelector("tl-session-settings").show();
  }

  /** Leave a session that was deleted for another one. */
  #onDeleted() {
    const { id } = this.session;
    this.sessions = this.sessions.filter(({ session_id }) => session_id !== id);
    navigate({}, { replace: true });
    this.#refresh();
    if (this.#search) this.#find(this.#search);
  }

  async #signOut() {
    try {
      await this.#client.signOut();
      this.#closeSession({ signedOut: true });
      this.#channel.postMessage(null);
    } catch (error) {
      this.#showError(error);
    }
  }

  render() {
    if (this.signedOut) return this.#drawSignIn();
    if (this.otherPrincipal) return this.#drawOtherPrincipal();
    if (this.loadError) return this.#drawLoadError();
    if (this.me === null) return html`<main class="blank"><p role="status">Connecting to the server</p></main>`;
    return html`
      ${this.#drawHeader()}
      <div class="columns" data-screen=${this.screen} ?data-offline=${this.session?.connection === "reconnecting"}>
        <tl-sessions .apps=${this.apps} .sessions=${this.sessions} .current=${this.session?.id}
          .mayCreate=${this.me.may_create_sessions} .me=${this.#name} @sign-out=${this.#signOut}
          .client=${this.#client} .hasMore=${this.hasMore} @show-more=${() => this.#showMore()}
          .found=${this.found} @search=${({ detail }) => this.#find(detail)}
          @start=${({ detail }) => this.#startSession(detail)}></tl-sessions>
        <main>${this.session ? this.#drawSession() : this.session === null ? this.#drawHome() : nothing}</main>
      </div>
      ${this.#drawScreenTabs()}
      <div class="problems" role="alert">${this.problems.map((problem) => this.#drawError(problem))}</div>`;
  }

  #drawSignIn() {
    import("./sign-in.js");
    return html`<tl-sign-in @signed-in=${() => this.#load()}></tl-sign-in>`;
  }

  #drawHome() {
    import("./home.js");
    return html`<tl-home .apps=${this.apps} .client=${this.#client} .mayCreate=${this.me.may_create_sessions} @start=${({ detail }) => this.#startSession(detail)}></tl-home>`;
  }

  #drawOtherPrincipal() {
    return html`<main class="blank">
      <h1>Turnlog</h1>
      <p role="alert">You are signed in as ${this.otherPrincipal} now.</p>
      <button @click=${() => location.reload()}>Reload</button>
    </main>`;
  }

  #drawLoadError() {
    return html`<main class="blank">
      <h1>Turnlog</h1>
      <p role="alert">${this.loadError.words}</p>
      ${this.loadError.detail === null ? nothing : html`<details><summary>Details</summary><p>${this.loadError.detail}</p></details>`}
      <button @click=${() => {
        this.loadError = null;
        this.#load();
      }}>Try again</button>
    </main>`;
  }

  #drawSession() {
    const { refusal } = this.session;
    const why = refusal && (REFUSAL_MESSAGES[refusal.status] ?? `This session cannot be read: ${refusal.message}`);
    if (why) return html`<p class="blank">${why}</p>`;
    return html`
      <tl-chat .session=${this.session} .isClosed=${this.#isClosed}></tl-chat>
      <tl-inspector .session=${this.session} .screen=${this.screen}></tl-inspector>`;
  }

  /** The display name of the signed-in person; guests have one per session. */
  get #name() {
    const { name } = this.me;
    return this.session?.displayName(name) ?? name;
  }

  #drawHeader() {
    const [words, look] = CONNECTION_LABELS[this.session?.connection] ?? [];
    return html`<header class="bar">
      <h1><a href="?" @click=${onPlainClick(() => navigate({}))}>Turnlog</a></h1>
      ${words ? html`<p class="line ${look}" role="status" id="connection">${words}</p>` : nothing}
      ${this.session ? html`<tl-totals .session=${this.session}></tl-totals>` : nothing}
      <span class="gap"></span>
      ${
        this.session && !this.session.refusal
          ? html`${this.me.may_create_sessions ? this.#drawSettings() : nothing}
        <button @click=${this.#openMembers}>Share</button>
        <tl-members .session=${this.session} .invites=${this.#info?.invites ?? []}></tl-members>`
          : nothing
      }
      <button class="plain" @click=${() => {
        switchTheme();
        this.requestUpdate();
      }}
        title="Light, dark, or as this machine is"><span class="wide">Theme: </span>${currentTheme()}</button>
    </header>`;
  }

  #drawSettings() {
    return html`<button @click=${this.#openSettings}>Session</button>
      <tl-session-settings .session=${this.session} .info=${this.#info ?? null}
        @deleted=${this.#onDeleted}></tl-session-settings>`;
  }

  /** A phone shows one column at a time. */
  #drawScreenTabs() {
    const screens = this.session ? SCREENS : HOME_SCREENS;
    return html`<nav class="screens" aria-label="Screens">${screens.map(
      ([name, title]) => html`
      <button aria-current=${this.screen === name ? "page" : nothing} @click=${() => (this.screen = name)}>
        ${title}</button>`,
    )}</nav>`;
  }
}

customElements.define("tl-console", AppShell);
