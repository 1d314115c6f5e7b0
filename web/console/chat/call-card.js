/**
 * `<tl-call>`: a call of a tool, with its true state, and the agents that it started inside it. What was given and
 * what came back is folded; what waits for a person is not, and nothing around it can be.
 */

import { html, nothing } from "lit";

import { Element } from "../ui/base-element.js";
import { drawFacts, pairsOf } from "../ui/fact-list.js";
import { imageOf } from "../markdown/url-policy.js";
import "../ui/json-preview.js";
import { whenOf, zoneOf } from "../ui/time-format.js";
import { DECISIONS, STATES, answerOf, gistOf, titleOf } from "../store/labels.js";

const WRITTEN_CHARS = 2000; // of arguments that are being written: the end of them
const PROGRESS_LINES = 8;

export class CallCard extends Element {
  static properties = { session: { attribute: false }, call: { attribute: false }, version: { attribute: false } };

  get #waits() {
    return this.call.state === "waiting" || this.call.waiting > 0;
  }

  updated() {
    const inside = this.querySelector(":scope > section > .inside");
    if (inside && this.#waits) inside.open = true;
  }

  /** What waits for somebody stays in sight. */
  #fold(event) {
    if (this.#waits) event.preventDefault();
  }

  render() {
    const { call } = this;
    const [words, look] = STATES[call.state];
    return html`<section class="call" role="group" data-state=${call.state} aria-label="Call of ${call.tool}">
      <details class="io">
        <summary><b title=${call.tool}>${titleOf(call.tool)}</b>
          <span class="gist">${call.state === "waiting" ? "" : gistOf(call.args)}</span>
          <span class="chip ${look}">${words}</span></summary>
        ${this.#values()}
      </details>
      ${this.#written()} ${this.#decided()} ${this.#progress()} ${this.#asked()} ${this.#answered()} ${this.#inside()}
      ${this.#outcome()}
    </section>`;
  }

  /** What went in and came out, for those who look. */
  #values() {
    const { tool, args, incomplete, input, result } = this.call;
    const parts = [
      ["Tool", tool],
      ["Arguments", args],
      ["Arguments, incomplete", incomplete],
      ["Given", input],
      ["Result", result?.result],
      ["Details of the error", result?.error?.details],
    ];
    return parts
      .filter(([, value]) => value != null)
      .map(
        ([name, value]) => html`
      <tl-value .name=${name} .value=${value}></tl-value>`,
      );
  }

  #written() {
    const { written } = this.call;
    return written ? html`<pre class="plain" tabindex="0">${written.slice(-WRITTEN_CHARS)}</pre>` : nothing;
  }

  #decided() {
    const { decision } = this.call;
    if (!decision) return nothing;
    const by = decision.actor ? ` by ${this.session.record.nameOf(decision.actor)}` : "";
    return html`<p class="note">${DECISIONS[decision.decision] ?? decision.decision}${by}${
      decision.notes ? `: ${decision.notes}` : ""
    } · ${time(decision.ts)}</p>`;
  }

  /** What a person answered, who and when. */
  #answered() {
    const { answer, input } = this.call;
    if (answer === null) return nothing;
    const who = answer.actor ? ` · ${this.session.record.nameOf(answer.actor)}` : "";
    return html`<p class="note answer"><b>${answerOf(this.call)}</b>${who} · ${time(answer.ts)}</p>
      ${input === null ? nothing : drawFacts(pairsOf(input))}`;
  }

  #progress() {
    const lines = this.call.progress
      .split("\n")
      .slice(-PROGRESS_LINES - 1)
      .join("\n");
    return lines ? html`<pre class="plain" tabindex="0" aria-label="Progress">${lines}</pre>` : nothing;
  }

  #asked() {
    if (this.call.state !== "waiting") return nothing;
    import("./lazy-input.js");
    return html`<tl-ask .session=${this.session} .call=${this.call} .version=${this.version}></tl-ask>`;
  }

  #inside() {
    const { flow, child, model, version } = this.call;
    if (!flow.entries.length && !child) return nothing;
    return html`<details class="inside" open>
      <summary @click=${this.#fold}><b>${child ?? "Inside"}</b> <span class="gist">${model ?? ""}</span></summary>
      <tl-flow .session=${this.session} .flow=${flow} .version=${version} .who=${child ?? null}></tl-flow>
    </details>`;
  }

  #outcome() {
    const { error, images = [] } = this.call.result ?? {};
    const isCancelled = this.call.state === "aborted";
    const words = isCancelled
      ? html`<p class="note">${error?.message}</p>`
      : html`<p class="fault"><b>${error?.code}</b> ${error?.message}</p>`;
    return html`
      ${error && !this.call.isFaultTold ? words : nothing}
      ${images.map(({ src, media_type }) => picture(src, media_type, this.call.tool))}`;
  }
}

function picture(src, media_type, tool) {
  const image = imageOf(src);
  if (image === null) return html`<p class="note">An image that is not shown: ${media_type} from elsewhere</p>`;
  return html`<img src=${image} alt="Made by ${titleOf(tool)}" loading="lazy">`;
}

const time = (ts) => html`<time datetime=${ts} title=${zoneOf(ts)}>${whenOf(ts)}</time>`;

customElements.define("tl-call", CallCard);
