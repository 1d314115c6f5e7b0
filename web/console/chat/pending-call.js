/**
 * `<tl-ask>`: the question of a pending call, inside its card (`question-form.js`). It closes, in every tab, when the
 * answer is in the log. Arguments are drawn as text.
 */

import { html, nothing } from "lit";
import { live } from "lit/directives/live.js";

import { openDraft } from "../app/storage.js";
import { humanizeName, riskLabel } from "../store/labels.js";
import { drawFacts, labelledPairs } from "../ui/fact-list.js";
import { formatDateTime, utcTooltip } from "../ui/time-format.js";
import { VIEW_TEXTS } from "../views/texts.js";
import { pendingCallKind, questionKey } from "./pending-call-kinds.js";
import { QuestionForm } from "./question-form.js";

const TEXTS = {
  approvalTitle: "May this run?",
  inputTitle: "The tool needs input",
  choiceTitle: "Please choose",
  confirmTitle: "Please confirm",
  answerTitle: "Please answer",
  answeredElsewhere: "This was already answered elsewhere.",
  answer: "Answer",
  otherAnswer: "Another answer",
  yes: "Yes",
  no: "No",
  skip: "Skip",
  send: "Send",
  view: VIEW_TEXTS,
};

export class PendingCallForm extends QuestionForm {
  static properties = {
    session: { attribute: false },
    call: { attribute: false },
  };
  texts = TEXTS;

  get kind() {
    return pendingCallKind(this.call);
  }

  get args() {
    return this.call.awaited.args;
  }

  get draft() {
    return openDraft(this.session.id, this.call.id, this.question);
  }

  willUpdate() {
    if (this.call.state === "waiting") this.openQuestion(questionKey(this.call));
  }

  render() {
    if (this.call.state !== "waiting") return nothing;
    return this.drawForm("ask", `${this.heading}: ${this.call.tool}`);
  }

  #sendDecision(approval, decision) {
    const { client, id } = this.session;
    return client.decide(id, approval, decision, this.typedText("note") || undefined);
  }

  sendValues(values) {
    return this.session.client.submitInput(this.session.id, this.call, values);
  }

  sendAnswer(value) {
    return this.session.client.answer(this.session.id, this.call, value);
  }

  sendFault(fault) {
    return this.session.client.fail(this.session.id, this.call, fault);
  }

  drawApproval() {
    const { approval, args, tool } = this.call;
    const { risk, reason, roles = [], expires_at } = approval;
    const { words, isSafe } = riskLabel(risk);
    const decide = (decision) => this.send(() => this.#sendDecision(approval, decision));
    return html`
      <dl class="facts">
        <dt>Tool</dt><dd title=${tool}>${humanizeName(tool)}</dd>
        <dt>Risk</dt><dd class=${isSafe ? "" : "risk"}>${words}</dd>
        ${reason ? html`<dt>What it does</dt><dd>${reason}</dd>` : nothing}
        <dt>Who may decide</dt><dd>${roles.length > 0 ? roles.join(", ") : "Every member of this session"}</dd>
        ${expires_at ? html`<dt>Expires</dt><dd title=${utcTooltip(expires_at)}>${formatDateTime(expires_at)}</dd>` : nothing}
      </dl>
      ${this.drawArguments(args)}
      ${this.drawField({ type: "field.text", name: "note", label: "Note (optional)" })}
      <div class="doing">
        <button type="button" class=${isSafe ? "strong" : "danger"} @click=${() => decide("approve")}>Approve</button>
        <button type="button" @click=${() => decide("deny")}>Deny</button>
      </div>`;
  }

  drawArguments(args) {
    const pairs = labelledPairs(args);
    return html`<div class="args" tabindex="0" role="region" aria-label="Arguments">
      ${pairs.length > 0 ? drawFacts(pairs) : "No arguments"}</div>`;
  }

  drawAnswerBox(more) {
    const { texts } = this;
    const isJson = this.typedText("json") === "yes";
    return html`${this.drawField({ type: "field.text", name: "answer", label: texts.answer, multiline: true })}
      <label class="check"><input type="checkbox" .checked=${live(isJson)}
        @change=${({ target }) => this.onType("json", target.checked ? "yes" : "")}> The answer is JSON</label>
      <div class="doing"><button class="strong" @click=${() => this.#submitAnswer(isJson)}>${texts.send}</button> ${more}</div>`;
  }

  #submitAnswer(isJson) {
    const text = this.typedText("answer");
    try {
      this.answer(isJson ? JSON.parse(text) : text);
    } catch (error) {
      this.showProblems([["answer", `This is not JSON: ${error.message}`]]);
    }
  }
}

customElements.define("tl-ask", PendingCallForm);
