/**
 * `<turnlog-chat session="sess_..." server="https://..." token="...">`: a conversation for its participants, to embed
 * in any page. It shows messages, views, questions and files, and nothing of how the agents work.
 *
 *     session         the session
 *     server          the root address of the server; by default the directory of the page
 *     token           a token of the member; without one the cookie counts. The property `token` may be a function
 *     lang            the language: a row of `LANGUAGES`; by default that of the page, then of the browser
 *     theme           "light" or "dark"; by default what the person prefers
 *     heading-level   the level of the title's heading, 1 or 2; 2 by default
 *
 * The event `turnlog-title` has the title of the session as `detail`. Colours and fonts are CSS properties
 * (docs/howto/chat-element.md); `::part(header)`, `::part(messages)` and `::part(composer)` reach the three areas.
 */

import { LitElement, html, nothing } from "lit";

import "./composer.js";
import "./message-list.js";
import { drawRefusal, drawTrouble } from "./notices.js";
import { shareStyles } from "./shared-styles.js";
import "./talk.css";
import { TalkSession } from "./talk-session.js";
import { LANGUAGES, chooseLanguage, chooseLocale } from "./texts.js";

const MAX_NAMES = 3; // of other participants in the header

export class TurnlogChat extends LitElement {
  static properties = {
    session: {},
    server: {},
    token: {},
    lang: {},
    theme: { reflect: true },
    headingLevel: { type: Number, attribute: "heading-level" },
  };
  #talk = null;
  #leaveStyles = null;
  #title = null;

  constructor() {
    super();
    Object.assign(this, { session: null, server: ".", token: null, lang: "", theme: null, headingLevel: 2 });
  }

  connectedCallback() {
    super.connectedCallback();
    this.#leaveStyles = shareStyles(this.renderRoot);
    this.requestUpdate();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.#leaveStyles?.();
    this.#talk?.close();
    this.#talk = null;
  }

  willUpdate(changed) {
    const isOther = ["session", "server", "token", "lang"].some((name) => changed.has(name));
    if (this.#talk !== null && !isOther) return;
    this.#talk?.close();
    this.#talk = null;
    if (this.session && this.isConnected) this.#open();
  }

  #open() {
    const language = chooseLanguage([this.lang, document.documentElement.lang, ...navigator.languages]);
    const locale = chooseLocale(language, [this.lang, ...navigator.languages]);
    const { session, server, token } = this;
    const talk = new TalkSession({
      ...{ session, server, token, language, locale, texts: LANGUAGES[language] },
      onChange: () => talk === this.#talk && this.requestUpdate(),
    });
    this.#talk = talk;
    this.renderRoot.lang = language;
    talk.start();
    import("./message-text.js");
  }

  updated() {
    const title = this.#talk?.title ?? null;
    if (title === this.#title) return;
    this.#title = title;
    this.dispatchEvent(new CustomEvent("turnlog-title", { detail: title }));
  }

  render() {
    const talk = this.#talk;
    if (talk === null) return nothing;
    return html`<div class="chat" lang=${talk.language}>
      ${this.#drawHeader(talk)}
      ${talk.error ? drawRefusal(talk) : talk.store ? this.#drawConversation(talk) : this.#drawStart(talk)}
    </div>`;
  }

  #drawHeader(talk) {
    const title = talk.title || talk.texts.conversation;
    return html`<div class="header" part="header">
      ${this.headingLevel === 1 ? html`<h1>${title}</h1>` : html`<h2>${title}</h2>`}
      ${talk.snapshot ? html`<p class="people">${this.#drawPeople(talk)}</p>` : nothing}
    </div>`;
  }

  #drawPeople(talk) {
    const { texts, snapshot, me } = talk;
    const own = snapshot.members.find(({ principal }) => principal === me);
    const others = snapshot.members.filter(({ principal, roles }) => principal !== me && roles.length > 0);
    const names = others.slice(0, MAX_NAMES).map(({ principal }) => talk.nameOf(principal));
    if (others.length > MAX_NAMES) names.push(texts.andMore(others.length - MAX_NAMES));
    const words = [
      own?.name ? texts.youAre(own.name) : null,
      names.length > 0 ? texts.alsoHere(names.join(", ")) : null,
    ];
    return words.filter(Boolean).join(" · ");
  }

  #drawStart(talk) {
    return html`<div class="scroller"><div class="content">
        <div class="skeleton" role="img" aria-label=${talk.texts.loading}><i></i><i></i><i></i></div>
      </div></div>
      ${talk.isUnreachable ? html`<div class="foot">${drawTrouble(talk, talk.texts.unreachable)}</div>` : nothing}`;
  }

  #drawConversation(talk) {
    const { texts, snapshot } = talk;
    const list = () => this.renderRoot.querySelector("tl-talk-messages");
    return html`${this.headingLevel === 1 ? html`<h2 class="unseen">${texts.messages}</h2>` : nothing}
      <tl-talk-messages part="messages" .talk=${talk} .snapshot=${snapshot}></tl-talk-messages>
      <div class="foot" part="composer">
        ${snapshot.connection === "reconnecting" ? drawTrouble(talk, texts.offline) : nothing}
        ${snapshot.pending.length > 0 ? this.#drawWaiting(talk, list) : nothing}
        ${
          talk.isClosed
            ? html`<p class="closed" role="status">${talk.closedText}</p>`
            : html`<tl-talk-composer .talk=${talk} .status=${snapshot.status}
            @sent=${() => list().scrollToEnd()}></tl-talk-composer>`
        }
      </div>`;
  }

  /** While all agents wait, a message takes the place of the answer (docs/protocol.md, 4.3). */
  #drawWaiting({ texts, snapshot }, list) {
    const words =
      snapshot.status === "waiting" ? `${texts.waitingForYou} ${texts.cancelsQuestion}` : texts.waitingForYou;
    return html`<p class="waiting" role="status"><span>${words}</span>
      <button type="button" @click=${() => list().showQuestion()}>${texts.showQuestion}</button></p>`;
  }
}

customElements.define("turnlog-chat", TurnlogChat);
