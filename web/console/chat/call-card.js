/**
 * `<tl-call>`: one call of a tool: its state, arguments, result, and the agents that it started. Arguments and result
 * are folded; a call that waits for a person is not, and neither is anything around it.
 */

import { html, nothing } from "lit";

import { allowedImage } from "../markdown/url-policy.js";
import { CALL_STATES, DECISION_LABELS, answerLabel, callSummary, humanizeName } from "../store/labels.js";
import { agentColourClass } from "../ui/agent-colour.js";
import { ConsoleElement } from "../ui/base-element.js";
import { drawFacts, labelledPairs } from "../ui/fact-list.js";
import { drawJson } from "../ui/lazy-json.js";
import { formatShortTime, utcTooltip } from "../ui/time-format.js";

const MAX_WRITTEN_CHARS = 2000; // of streaming arguments: the end
const MAX_PROGRESS_LINES = 8;

export class CallCard extends ConsoleElement {
  static properties = { session: { attribute: false }, call: { attribute: false } };

  updated() {
    const inside = this.querySelector(":scope > section > .inside");
    if (inside && this.call.hasWaiting) inside.open = true;
  }

  /** A call that waits for a person cannot be folded. */
  #onFold(event) {
    if (this.call.hasWaiting) event.preventDefault();
  }

  render() {
    const { call } = this;
    const [words, look] = CALL_STATES[call.state];
    return html`<section class="call" role="group" data-state=${call.state} aria-label="Call of ${call.tool}">
      <details class="io">
        <summary><b title=${call.tool}>${humanizeName(call.tool)}</b>
          <span class="gist">${call.state === "waiting" ? "" : callSummary(call.args)}</span>
          <span class="chip ${look}">${words}</span></summary>
        ${this.#drawValues()}
      </details>
      ${this.#drawWritten()} ${this.#drawDecision()} ${this.#drawProgress()} ${this.#drawPending()} ${this.#drawAnswer()} ${this.#drawInside()}
      ${this.#drawOutcome()}
    </section>`;
  }

  #drawValues() {
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
      <p class="label">${name}</p>${drawJson(value)}`,
      );
  }

  #drawWritten() {
    const { written } = this.call;
    return written ? html`<pre class="plain" tabindex="0">${written.slice(-MAX_WRITTEN_CHARS)}</pre>` : nothing;
  }

  #drawDecision() {
    const { decision } = this.call;
    if (!decision) return nothing;
    const by = decision.actor ? ` by ${this.session.displayName(decision.actor)}` : "";
    return html`<p class="note">${DECISION_LABELS[decision.decision] ?? decision.decision}${by}${
      decision.notes ? `: ${decision.notes}` : ""
    } · ${drawTime(decision.ts)}</p>`;
  }

  #drawAnswer() {
    const { answer, input } = this.call;
    if (answer === null) return nothing;
    const who = answer.actor ? ` · ${this.session.displayName(answer.actor)}` : "";
    return html`<p class="note answer"><b>${answerLabel(this.call)}</b>${who} · ${drawTime(answer.ts)}</p>
      ${input === null ? nothing : drawFacts(labelledPairs(input))}`;
  }

  #drawProgress() {
    const lines = this.call.progress
      .split("\n")
      .slice(-MAX_PROGRESS_LINES - 1)
      .join("\n");
    return lines ? html`<pre class="plain" tabindex="0" aria-label="Progress">${lines}</pre>` : nothing;
  }

  #drawPending() {
    if (this.call.state !== "waiting") return nothing;
    import("./lazy-input.js");
    return html`<tl-ask .session=${this.session} .call=${this.call}></tl-ask>`;
  }

  #drawInside() {
    const { inside, agents, child, model } = this.call;
    if (agents.length === 0) return nothing;
    return html`<details class="inside ${agentColourClass(child)}" open>
      <summary @click=${this.#onFold}><b>${child ?? "Inside"}</b> <span class="gist">${model ?? ""}</span></summary>
      <tl-flow .session=${this.session} .entries=${inside} .holders=${agents} .who=${child}></tl-flow>
    </details>`;
  }

  #drawOutcome() {
    const { error, images = [] } = this.call.result ?? {};
    const isCancelled = this.call.state === "aborted";
    const words = isCancelled
      ? html`<p class="note">${error?.message}</p>`
      : html`<p class="fault"><b>${error?.code}</b> ${error?.message}</p>`;
    return html`
      ${error && !this.call.isErrorShown ? words : nothing}
      ${images.map(({ src, media_type }) => drawImage(src, media_type, this.call.tool))}`;
  }
}

function drawImage(src, media_type, tool) {
  const image = allowedImage(src);
  if (image === null) return html`<p class="note">Image not shown: ${media_type} from another server</p>`;
  return html`<img src=${image} alt="Made by ${humanizeName(tool)}" loading="lazy">`;
}

const drawTime = (ts) => html`<time datetime=${ts} title=${utcTooltip(ts)}>${formatShortTime(ts)}</time>`;

customElements.define("tl-call", CallCard);
