/**
 * `<tl-entry>`: one entry of the chat, drawn by its kind; an unknown kind is drawn as an event. `named` puts the name
 * of the speaker above it.
 */

import { html, nothing } from "lit";

import { showEvent } from "../app/router.js";
import { blobUrl } from "../markdown/url-policy.js";
import { actionLabel, commandLabel, endLabel, eventLabel, shortText } from "../store/labels.js";
import { agentColourClass } from "../ui/agent-colour.js";
import { ConsoleElement } from "../ui/base-element.js";
import { copyText, hasClipboard } from "../ui/clipboard.js";
import { costLabel, formatCount, formatDuration } from "../ui/format.js";
import { formatShortTime, utcTooltip } from "../ui/time-format.js";
import "./call-card.js";

export class EntryElement extends ConsoleElement {
  static properties = {
    session: { attribute: false },
    entry: { attribute: false },
    named: { attribute: false },
    meter: { attribute: false },
    copied: { state: true },
  };

  async #copy(text) {
    await copyText(text);
    this.copied = true;
    setTimeout(() => (this.copied = false), COPIED_MS);
  }

  #drawCopy({ text }) {
    if (!text || !hasClipboard()) return nothing;
    return html`<button class="plain copy" aria-label="Copy this message"
      @click=${() => this.#copy(text)}>${this.copied ? "Copied" : "Copy"}</button>`;
  }

  render() {
    const { entry, session, meter } = this;
    const colour = agentColourClass(entry.speaker ?? entry.agent_name);
    const draw = RENDERERS[entry.kind] ?? ((other) => drawEventChips([other]));
    return html`<div class="entry ${entry.kind}" data-kind=${entry.kind} data-seq=${entry.seq} tabindex="-1">
      ${this.named ? html`<p class="name ${colour}">${speakerName(entry)}</p>` : nothing}
      ${draw(entry, session)}
      <button class="plain seq" title=${entry.ts} aria-label="Event ${entry.seq}"
        @click=${() => showEvent(entry.seq)}>#${entry.seq}</button>
      ${COPIED_KINDS.has(entry.kind) ? this.#drawCopy(entry) : nothing}
      ${meter ? drawMeter(meter) : nothing}
    </div>`;
  }
}

const COPIED_MS = 2000;
const COPIED_KINDS = new Set(["message", "text"]);

/** Draw the time, the tokens and the cost of a turn that has ended. */
function drawMeter(meter) {
  const { ended, duration_ms, input_tokens, output_tokens } = meter;
  return html`<p class="turn-foot"><time datetime=${ended} title=${utcTooltip(ended)}>${formatShortTime(ended)}</time>,
    ${formatDuration(duration_ms)}, ${formatCount(input_tokens + output_tokens)} tokens, ${costLabel(meter)}</p>`;
}

/** Return the name above an entry; null if its kind has none. */
export const speakerName = (entry) => (NAMED_KINDS.has(entry.kind) ? (entry.speaker ?? entry.agent_name) : null);

const NAMED_KINDS = new Set(["text", "thinking", "call", "view", "files"]);

/** Draw events without a look of their own as a row of chips. */
export const drawEventChips = (entries) =>
  html`<p class="events">${entries.map((entry) => {
    const { title, detail } = eventLabel(entry);
    return html`<button class="chip" data-key=${entry.key} data-seq=${entry.seq} data-type=${entry.type} title=${entry.type}
    @click=${() => showEvent(entry.seq)}><b>${title}</b> ${detail}</button>`;
  })}</p>`;

/** Return the sender's name; null if it is the signed-in person. */
function otherSpeaker({ speaker, author }, session) {
  const who = speaker ?? author;
  return who && who !== session.me.name ? session.displayName(who) : null;
}

function drawMessage(entry, session) {
  const { speaker, author, target, channel, text, files } = entry;
  const other = otherSpeaker(entry, session);
  return html`<div class=${other ? "theirs" : "mine"}>
    <p class="about">
      ${other ? html`<b title=${speaker ?? author}>${other}</b>` : html`<b class="unseen">You</b>`}
      ${target ? html`<span>to ${target}</span>` : nothing}
      ${channel ? html`<span class="chip">${channel}</span>` : nothing}
    </p>
    ${text ? html`<p class="said">${text}</p>` : nothing}
    ${files.map(drawAttachment)}
  </div>`;
}

function drawThinking({ text, redacted }) {
  if (redacted) return html`<p class="note">Thinking (hidden by the provider)</p>`;
  return html`<details><summary>Thinking <span class="gist">${shortText(text)}</span></summary>
    <p class="plain">${text}</p></details>`;
}

function drawText(entry) {
  return html`<tl-text .textPart=${entry.part}></tl-text>`;
}

function drawCall(entry, session) {
  return html`<tl-call .session=${session} .call=${entry}></tl-call>`;
}

function drawView(entry, session) {
  import("./lazy-input.js");
  return html`<tl-view .session=${session} .entry=${entry}></tl-view>`;
}

const drawAgent = ({ child, model, inside, agents }, session) => html`<details open class=${agentColourClass(child)}>
  <summary><b>${child}</b> <span class="gist">${model ?? ""}</span></summary>
  <tl-flow .session=${session} .entries=${inside} .holders=${agents} .who=${child}></tl-flow></details>`;

const drawNote = (words) => html`<p class="note">${words}</p>`;

function drawFile({ filename, src }, index) {
  const place = blobUrl(src);
  return html`${index ? ", " : ""}${place ? html`<a href=${place} download=${filename}>${filename}</a>` : filename}`;
}

/** Draw a file of a message: an image as a picture, any other as a link. */
function drawAttachment({ filename, src, media_type }) {
  const place = blobUrl(src);
  const name = filename ?? "A file";
  if (place === null) return html`<p class="note">${name}</p>`;
  const picture = html`<img src=${place} alt=${name} loading="lazy">`;
  return html`<p class="attached"><a href=${place} download=${name}>${media_type?.startsWith("image/") ? picture : name}</a></p>`;
}

const RENDERERS = {
  message: drawMessage,
  text: drawText,
  thinking: drawThinking,
  call: drawCall,
  view: drawView,
  agent: drawAgent,
  handoff: ({ agent_name, to }) => drawNote(`${agent_name ?? "The agent"} handed over to ${to}`),
  files: ({ files }) => html`<p class="note">Files: ${files.map(drawFile)}</p>`,
  error: ({ payload }) => html`<p class="fault"><b>${payload.code}</b> ${payload.message}</p>`,
  end: (entry, session) => drawNote(endLabel({ ...entry, by: session.displayName(entry.by) })),
  action: ({ actor, payload }, session) => drawNote(actionLabel(session.displayName(actor), payload.action)),
  command: ({ actor, payload }, session) => drawNote(commandLabel(session.displayName(actor), payload.command)),
  restart: () => drawNote("The server was restarted"),
};

customElements.define("tl-entry", EntryElement);
