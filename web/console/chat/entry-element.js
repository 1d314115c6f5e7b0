/**
 * `<tl-entry>`: one entry of the chat, drawn by its kind; an unknown kind is drawn as an event. `named` puts the name
 * of the speaker above it.
 */

import { html, nothing } from "lit";

import { showEvent } from "../app/router.js";
import { blobUrl } from "../markdown/url-policy.js";
import { actionLabel, commandLabel, endLabel, eventLabel, shortText } from "../store/labels.js";
import { ConsoleElement } from "../ui/base-element.js";
import "./call-card.js";

export class EntryElement extends ConsoleElement {
  static properties = {
    session: { attribute: false },
    entry: { attribute: false },
    version: { attribute: false },
    named: { attribute: false },
  };

  render() {
    const { entry, session } = this;
    const draw = RENDERERS[entry.kind] ?? ((other) => drawEventChips([other]));
    return html`<div class="entry ${entry.kind}" data-kind=${entry.kind} data-seq=${entry.seq} tabindex="-1">
      ${this.named ? html`<p class="name">${speakerName(entry)}</p>` : nothing}
      ${draw(entry, session)}
      <button class="plain seq" title=${entry.ts} aria-label="Event ${entry.seq}"
        @click=${() => showEvent(entry.seq)}>#${entry.seq}</button>
    </div>`;
  }
}

/** Return the name above an entry; null if its kind has none. */
export const speakerName = (entry) => (NAMED_KINDS.has(entry.kind) ? (entry.speaker ?? entry.agent_name) : null);

const NAMED_KINDS = new Set(["text", "thinking", "call", "view", "files"]);

/** Draw events without a look of their own as a row of chips. */
export const drawEventChips = (entries) =>
  html`<p class="events">${entries.map((entry) => {
    const { title, detail } = eventLabel(entry);
    return html`<button class="chip" data-seq=${entry.seq} data-type=${entry.type} title=${entry.type}
    @click=${() => showEvent(entry.seq)}><b>${title}</b> ${detail}</button>`;
  })}</p>`;

/** Return the sender's name; null if it is the signed-in person. */
function otherSpeaker({ payload, actor }, { me, log }) {
  const who = payload.speaker ?? actor;
  return who && who !== me.name ? log.displayName(who) : null;
}

function drawMessage(entry, session) {
  const { payload, channel } = entry;
  const other = otherSpeaker(entry, session);
  return html`<div class=${other ? "theirs" : "mine"}>
    <p class="about">
      ${other ? html`<b title=${payload.speaker ?? entry.actor}>${other}</b>` : html`<b class="unseen">You</b>`}
      ${payload.target ? html`<span>to ${payload.target}</span>` : nothing}
      ${channel ? html`<span class="chip">${channel}</span>` : nothing}
    </p>
    <p class="said">${payload.text}</p>
  </div>`;
}

function drawThinking({ text, redacted }) {
  if (redacted) return html`<p class="note">Thinking (hidden by the provider)</p>`;
  return html`<details><summary>Thinking <span class="gist">${shortText(text)}</span></summary>
    <p class="plain">${text}</p></details>`;
}

function drawText(entry) {
  return html`<tl-text .entry=${entry} .version=${entry.version}></tl-text>`;
}

function drawCall(entry, session) {
  return html`<tl-call .session=${session} .call=${entry} .version=${entry.version}></tl-call>`;
}

function drawView(entry, session) {
  import("./lazy-input.js");
  return html`<tl-view .session=${session} .entry=${entry} .version=${entry.version}></tl-view>`;
}

const drawAgent = ({ payload, thread, version }, session) => html`<details open>
  <summary><b>${payload.name}</b> <span class="gist">${payload.model ?? ""}</span></summary>
  <tl-flow .session=${session} .thread=${thread} .version=${version} .who=${payload.name}></tl-flow></details>`;

const drawNote = (words) => html`<p class="note">${words}</p>`;

function drawFile({ filename, storage_location }, index) {
  const place = blobUrl(storage_location);
  return html`${index ? ", " : ""}${place ? html`<a href=${place} download=${filename}>${filename}</a>` : filename}`;
}

const RENDERERS = {
  message: drawMessage,
  text: drawText,
  thinking: drawThinking,
  call: drawCall,
  view: drawView,
  agent: drawAgent,
  handoff: ({ agent_name, payload }) => drawNote(`${agent_name ?? "The agent"} handed over to ${payload.to}`),
  files: ({ payload }) => html`<p class="note">Files: ${payload.files.map(drawFile)}</p>`,
  error: ({ payload }) => html`<p class="fault"><b>${payload.code}</b> ${payload.message}</p>`,
  end: (entry, { log }) => drawNote(endLabel({ ...entry, by: entry.by && log.displayName(entry.by) })),
  action: ({ actor, payload }, { log }) => drawNote(actionLabel(log.displayName(actor), payload.action)),
  command: ({ actor, payload }, { log }) => drawNote(commandLabel(log.displayName(actor), payload.command)),
  restart: () => drawNote("The server was restarted"),
};

customElements.define("tl-entry", EntryElement);
