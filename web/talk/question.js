/**
 * `<tl-talk-question>`: what an agent asks of a person (`question-form.js`), and how the question ended. It closes, in
 * every tab, when the answer is in the log. All words of the question are drawn as text.
 */

import { html, nothing } from "lit";

import { parseChoices, pendingCallKind, promptText } from "../console/chat/pending-call-kinds.js";
import { QuestionForm } from "../console/chat/question-form.js";
import { openDraft } from "../console/app/storage.js";
import { humanizeName } from "../console/store/labels.js";
import { drawFacts, labelledPairs } from "../console/ui/fact-list.js";
import { formatShortTime } from "../console/ui/time-format.js";

export class TalkQuestion extends QuestionForm {
  static properties = {
    talk: { attribute: false },
    part: { attribute: false }, // a question or an approval
  };

  get texts() {
    return this.talk.texts;
  }

  get kind() {
    if (this.part.type === "approval") return "approval";
    const { wants, tool, args } = this.part;
    const executor = wants === "values" ? "backend" : "frontend";
    return pendingCallKind({ approval: null, executor, tool, awaited: { args } });
  }

  get args() {
    return this.part.args;
  }

  get draft() {
    return openDraft(this.talk.id, this.part.id, this.part.seq);
  }

  willUpdate() {
    this.openQuestion(`${this.part.id} ${this.part.seq}`);
  }

  render() {
    if (this.part.state !== "open") return this.#drawEnd();
    return this.drawForm("question", this.heading);
  }

  /** Say who answered, and what. */
  #drawEnd() {
    const { talk, part } = this;
    const { texts } = talk;
    const [own, other] = ENDS[part.state] ?? ENDS.closed;
    const { answer } = part;
    const words = answer && talk.isMe(answer.actor) && own ? texts[own] : endWords(texts[other], talk, answer);
    const shown = answer && "value" in answer ? answerWords(answer.value, part, texts) : null;
    const question = part.type === "question" ? promptText(part) : (part.request.reason ?? null);
    return html`<div class="sheet over" data-state=${part.state}>
      ${question ? html`<p>${question}</p>` : nothing}
      <p class="done">${words}${shown === null ? nothing : html`: <b>${shown}</b>`}</p>
      ${answer?.notes ? html`<p class="words">${answer.notes}</p>` : nothing}
    </div>`;
  }

  sendValues(values) {
    return this.talk.store.answer(this.part, values);
  }

  sendAnswer(value) {
    return this.talk.store.answer(this.part, value);
  }

  sendFault(fault) {
    return this.talk.store.fail(this.part, fault);
  }

  drawApproval() {
    const { request, tool, call_id } = this.part;
    const { texts, locale } = this.talk;
    const decide = (decision) =>
      this.send(() => this.talk.store.decide(this.part, decision, this.typedText("note") || undefined));
    const { risk, reason, expires_at } = request;
    const args = request.args ?? this.talk.argsOf(call_id);
    const words = [reason || (tool === "tool" ? null : humanizeName(tool)), /\s/.test(risk) ? risk : null];
    return html`${words.filter(Boolean).map((line, at) => html`<p class="words ${at > 0 ? "risk" : ""}">${line}</p>`)}
      ${this.drawArguments(args)}
      ${expires_at ? html`<p class="help">${texts.expires(formatShortTime(expires_at, { locale }))}</p>` : nothing}
      ${this.drawField({ type: "field.text", name: "note", label: texts.note })}
      <div class="doing">
        <button type="button" class="strong" @click=${() => decide("approve")}>${texts.approve}</button>
        <button type="button" @click=${() => decide("deny")}>${texts.deny}</button>
      </div>`;
  }

  drawArguments(args) {
    const pairs = labelledPairs(args);
    if (pairs.length === 0) return nothing;
    return html`<div class="args" tabindex="0" role="region" aria-label=${this.texts.details}>${drawFacts(pairs, this.talk.texts.view.values)}</div>`;
  }

  drawAnswerBox(more) {
    const { texts } = this;
    return html`${this.drawField({ type: "field.text", name: "answer", label: texts.answer, multiline: true })}
      <div class="doing"><button class="strong" @click=${() => this.#submitText()}>${texts.send}</button> ${more}</div>`;
  }

  #submitText() {
    const text = this.typedText("answer");
    if (text.trim() === "") return void this.showProblems([["answer", this.texts.required]]);
    this.answer(text);
  }
}

/** By state of a part: the text for the own answer, and for one of another person or of no one. */
const ENDS = {
  __proto__: null,
  answered: ["youAnswered", "answered"],
  approve: ["youApproved", "approved"],
  deny: ["youDenied", "denied"],
  expired: [null, "expired"],
  closed: [null, "questionClosed"],
};

const endWords = (text, talk, answer) => (typeof text === "function" ? text(talk.nameOf(answer?.actor ?? null)) : text);

/** Return an answer in a few words; null for an object of values. */
function answerWords(value, { args }, texts) {
  if (typeof value === "boolean") return value ? texts.yes : texts.no;
  if (value === null || typeof value === "object") return null;
  const choice = parseChoices(args).find((each) => each.value === value);
  return choice?.label ?? String(value);
}

customElements.define("tl-talk-question", TalkQuestion);
