/**
 * A conversation as Markdown, for a file: what the chat shows, in the same order, nested in the same way.
 *
 * Texts of the model stay Markdown, but whoever opens the file runs no HTML and loads no image of theirs
 * (`prose`). Everything else stands in fences longer than any inside. Characters that control a terminal or
 * the direction of writing are spelled out.
 */

import { CUTS, DECISIONS, STATES, actionOf, answerOf, commandOf, endOf, titleOf } from "./labels.js";

const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Control characters as `\x1b` or `\u202e`; line feeds and tabs stay. */
export function visible(text) {
  const spelled = (one) => {
    const code = one.charCodeAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  };
  return text.replace(/\r\n/g, "\n").replace(CONTROL, spelled);
}

/** A text between fences that it cannot end. */
export function fenced(text, language = "") {
  const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), ([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${visible(text).replace(/\n$/, "")}\n${fence}`;
}

/** Words in the middle of a line, as they are. */
export const plain = (text) =>
  visible(text)
    .replace(/\s+/g, " ")
    .replace(/[\\`*_[\]<>#|!&~]/g, "\\$&");

const OPENS = /^(`{3,}(?=[^`]*$)|~{3,})/; // only where no list or quotation can end it
const CODE = /(?<![\\`])(`+)(?!`)[^|]*?(?<!`)\1(?!`)/g; // within one line; a bar may end a cell of a table

/** Markdown of the model: HTML and images are shown as they were written, outside code; fences are closed. */
export function prose(text) {
  let fence = null;
  const lines = visible(text)
    .split("\n")
    .map((line) => {
      if (fence === null) {
        fence = OPENS.exec(line)?.[1] ?? null;
        return fence === null ? outside(line) : line;
      }
      const end = /^ {0,3}(`{3,}|~{3,})[ \t]*$/.exec(line)?.[1];
      if (end && end[0] === fence[0] && end.length >= fence.length) fence = null;
      return line;
    });
  return [...lines, ...(fence === null ? [] : [fence])].join("\n");
}

/** A line without what a viewer would run or load, but for code. */
function outside(line) {
  let made = "";
  let at = 0;
  for (const code of line.matchAll(CODE)) {
    made += disarmed(line.slice(at, code.index)) + code[0];
    at = code.index + code[0].length;
  }
  return made + disarmed(line.slice(at));
}

const disarmed = (text) => text.replace(/<(?=[a-z/!?])/gi, "&lt;").replace(/!(?=\[)/g, "&#33;");

/** What a person wrote: words, not Markdown. Lines stay lines. */
export function spoken(text) {
  const line = (words) => plain(words.trim()).replace(STARTS, "$1\\$2");
  const paragraph = (lines) => lines.split("\n").map(line).join("\\\n");
  return text
    .trim()
    .split(/\n\s*\n/)
    .map(paragraph)
    .join("\n\n");
}

const STARTS = /^(\d*)([-+=.)])/; // what would begin a list or underline a title

const json = (value) => (typeof value === "string" ? fenced(value) : fenced(JSON.stringify(value, null, 2), "json"));
const quoted = (text) => text.replace(/^/gm, "> ").replace(/^> $/gm, ">");
const titled = (...parts) => parts.filter(Boolean).join("\n\n");
const bold = (text) => `**${plain(text)}**`;
const note = (text) => `_${plain(text)}_`;
const value = (name, given) => given != null && titled(`${name}:`, json(given));
const fault = ({ code, message }) => `${bold(code)} ${plain(message)}`;

function message({ payload, actor, channel }, people) {
  const { me, nameOf } = people;
  const isMine = (payload.speaker ?? actor ?? me) === me;
  const who = isMine ? "You" : (payload.speaker ?? nameOf(actor));
  const to = [payload.target && `to ${plain(payload.target)}`, channel && `in ${plain(channel)}`];
  return titled([bold(who), ...to].filter(Boolean).join(" "), spoken(payload.text));
}

function text({ speaker, agent_name, text, aborted, cut, citations }) {
  const sources = citations.map(({ title, document_title, url, source, cited_text }, at) => {
    const where = [title ?? document_title ?? "Source", url ?? source, cited_text && `“${cited_text}”`];
    return `${at + 1}. ${where.filter(Boolean).map(plain).join(", ")}`;
  });
  const said = [prose(text), aborted && CUTS[cut] && note(CUTS[cut]), sources.join("\n")];
  return titled(bold(speaker ?? agent_name ?? "Assistant"), ...said);
}

function thinking({ text, redacted }) {
  return redacted ? note("Thinking, which the provider does not show") : titled(note("Thinking"), quoted(spoken(text)));
}

const by = (words, actor, people) => (actor ? words + people.nameOf(actor) : "");

function call(entry, people) {
  const { tool, state, args, incomplete, input, decision, answer, child, flow, result } = entry;
  const said = decision && `${DECISIONS[decision.decision]}${by(" by ", decision.actor, people)}`;
  const inside = (child || flow.entries.length > 0) && quoted(titled(child && bold(child), entries(flow, people)));
  return titled(
    `${bold(titleOf(tool))} (${plain(tool)}) ${STATES[state][0]}`,
    value("Arguments", args),
    value("Arguments, incomplete", incomplete),
    value("Given", input),
    answer && note(answerOf(entry) + by(", ", answer.actor, people)),
    said && note(decision.notes ? `${said}: ${decision.notes}` : said),
    inside,
    value("Result", result?.result),
    result?.error && fault(result.error),
    ...(result?.images ?? []).map(({ media_type }) => note(`An image: ${media_type}`)),
  );
}

const KINDS = {
  message,
  text,
  thinking,
  call,
  agent: ({ payload, flow }, people) => titled(bold(payload.name), quoted(entries(flow, people))),
  view: ({ view, over, actions }, people) =>
    titled(
      `${bold(view.title ?? view.view_id)} ${over ?? ""}`.trim(),
      json(view.tree),
      ...actions.map(({ actor, action }) =>
        titled(note(actionOf(people.nameOf(actor), action, view.tree)), value("Given", action.values)),
      ),
    ),
  handoff: ({ agent_name, payload }) => note(`${agent_name ?? "The agent"} handed over to ${payload.to}`),
  files: ({ payload }) => note(`Files: ${payload.files.map(({ filename }) => filename).join(", ")}`),
  error: ({ payload }) => fault(payload),
  end: (entry, people) => note(endOf({ ...entry, by: people.nameOf(entry.by) })),
  action: ({ actor, payload }, people) => note(actionOf(people.nameOf(actor), payload.action)),
  command: ({ actor, payload }, people) => note(commandOf(people.nameOf(actor), payload.command)),
  restart: () => note("The server was restarted"),
};

const event = ({ type, payload }) => titled(bold(type), json(payload));

const entries = (flow, people) => flow.entries.map((entry) => (KINDS[entry.kind] ?? event)(entry, people)).join("\n\n");

/**
 * The whole conversation (`conversation.js`) under a title; last, the messages that wait for their turn. Of `people`,
 * `me` is the principal of who exports, and `nameOf` says what a principal is called.
 */
export function markdown({ flow, queue }, title, people) {
  const queued = queue.map((entry) => titled(note("Queued"), message(entry, people)));
  return `${titled(`# ${plain(title)}`, entries(flow, people), ...queued)}\n`;
}

/** A name for a file that every system takes. */
export const fileName = (title, ending) =>
  `${
    title
      .normalize("NFKD")
      .replace(/\p{M}+/gu, "")
      .replace(/[^\w-]+/g, "-")
      .replace(/^-+|-+$/g, "")
      .slice(0, 60) || "session"
  }.${ending}`;
