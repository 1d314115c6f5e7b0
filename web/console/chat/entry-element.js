/**
 * `<tl-entry>`: one entry of the chat, drawn by its kind. An unknown kind is drawn as what it is: an event.
 * `named` says that the entry begins what somebody says.
 */

import { html, nothing } from "lit";

import "./call-card.js";
import { Element } from "../ui/base-element.js";
import { fileOf } from "../markdown/url-policy.js";
import { goToEvent } from "../app/router.js";
import { actionOf, commandOf, endOf, eventOf, oneLine } from "../store/labels.js";

export class Entry extends Element {
  static properties = {
    session: { attribute: false },
    entry: { attribute: false },
    version: { attribute: false },
    named: { attribute: false },
  };

  render() {
    const { entry, session } = this;
    const draw = KINDS[entry.kind] ?? ((other) => chips([other]));
    return html`<div class="entry ${entry.kind}" data-kind=${entry.kind} data-seq=${entry.seq} tabindex="-1">
      ${this.named ? html`<p class="name">${nameOf(entry)}</p>` : nothing}
      ${draw(entry, session)}
      <button class="plain seq" title=${entry.ts} aria-label="Event ${entry.seq}"
        @click=${() => goToEvent(entry.seq)}>#${entry.seq}</button>
    </div>`;
  }
}

/** Whose words or work an entry is; null if that needs no name. */
export const nameOf = (entry) => (SPOKEN.has(entry.kind) ? (entry.speaker ?? entry.agent_name) : null);

const SPOKEN = new Set(["text", "thinking", "call", "view", "files"]);

/** Events that need no look of their own, side by side. */
export const chips = (entries) =>
  html`<p class="events">${entries.map((entry) => {
    const { title, said } = eventOf(entry);
    return html`<button class="chip" data-seq=${entry.seq} data-type=${entry.type} title=${entry.type}
    @click=${() => goToEvent(entry.seq)}><b>${title}</b> ${said}</button>`;
  })}</p>`;

/** Whose words a message is; null if they are one's own. */
function otherOf({ payload, actor }, { me, record }) {
  const who = payload.speaker ?? actor;
  return who && who !== me.name ? record.nameOf(who) : null;
}

function message(entry, session) {
  const { payload, channel } = entry;
  const other = otherOf(entry, session);
  return html`<div class=${other ? "theirs" : "mine"}>
    <p class="about">
      ${other ? html`<b title=${payload.speaker ?? entry.actor}>${other}</b>` : html`<b class="unseen">You</b>`}
      ${payload.target ? html`<span>to ${payload.target}</span>` : nothing}
      ${channel ? html`<span class="chip">${channel}</span>` : nothing}
    </p>
    <p class="said">${payload.text}</p>
  </div>`;
}

function thinking({ text, redacted }) {
  if (redacted) return html`<p class="note">Thinking, which the provider does not show</p>`;
  return html`<details><summary>Thinking <span class="gist">${oneLine(text)}</span></summary>
    <p class="plain">${text}</p></details>`;
}

function text(entry) {
  return html`<tl-text .entry=${entry} .version=${entry.version}></tl-text>`;
}

function call(entry, session) {
  return html`<tl-call .session=${session} .call=${entry} .version=${entry.version}></tl-call>`;
}

function view(entry, session) {
  import("./lazy-input.js");
  return html`<tl-view .session=${session} .entry=${entry} .version=${entry.version}></tl-view>`;
}

const agent = ({ payload, flow, version }, session) => html`<details open>
  <summary><b>${payload.name}</b> <span class="gist">${payload.model ?? ""}</span></summary>
  <tl-flow .session=${session} .flow=${flow} .version=${version} .who=${payload.name}></tl-flow></details>`;

const note = (words) => html`<p class="note">${words}</p>`;

function file({ filename, storage_location }, index) {
  const place = fileOf(storage_location);
  return html`${index ? ", " : ""}${place ? html`<a href=${place} download=${filename}>${filename}</a>` : filename}`;
}

const KINDS = {
  message,
  text,
  thinking,
  call,
  view,
  agent,
  handoff: ({ agent_name, payload }) => note(`${agent_name ?? "The agent"} handed over to ${payload.to}`),
  files: ({ payload }) => html`<p class="note">Files: ${payload.files.map(file)}</p>`,
  error: ({ payload }) => html`<p class="fault"><b>${payload.code}</b> ${payload.message}</p>`,
  end: (entry, { record }) => note(endOf({ ...entry, by: entry.by && record.nameOf(entry.by) })),
  action: ({ actor, payload }, { record }) => note(actionOf(record.nameOf(actor), payload.action)),
  command: ({ actor, payload }, { record }) => note(commandOf(record.nameOf(actor), payload.command)),
  restart: () => note("The server was restarted"),
};

customElements.define("tl-entry", Entry);
