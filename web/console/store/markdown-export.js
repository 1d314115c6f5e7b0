/**
 * Exports a conversation as Markdown: what the chat shows, in the same order and nesting.
 *
 * Texts of the model stay Markdown, but a viewer runs no HTML and loads no image of theirs (`neutralizeMarkdown`).
 * Other values stand in fences longer than any inside. Control characters, also of text direction, are escaped.
 */

import {
  ABORT_LABELS,
  actionLabel,
  answerLabel,
  CALL_STATES,
  commandLabel,
  DECISION_LABELS,
  endLabel,
  humanizeName,
} from "./labels.js";

const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Escape control characters as `\x1b` or `\u202e`; line feeds and tabs stay. */
export function escapeControls(text) {
  const spelled = (one) => {
    const code = one.charCodeAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  };
  return text.replace(/\r\n/g, "\n").replace(CONTROL, spelled);
}

/** Put a text between fences longer than any inside. */
export function fenceCode(text, language = "") {
  const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), ([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${escapeControls(text).replace(/\n$/, "")}\n${fence}`;
}

/** Escape a text for the middle of a line. */
export const escapeInline = (text) =>
  escapeControls(text)
    .replace(/\s+/g, " ")
    .replace(/[\\`*_[\]<>#|!&~]/g, "\\$&");

const FENCE_START = /^(`{3,}(?=[^`]*$)|~{3,})/; // only at the start of a line, where no list or quote can end it
const CODE_SPAN = /(?<![\\`])(`+)(?!`)[^|]*?(?<!`)\1(?!`)/g; // within one line; a bar may end a cell of a table

/** Keep a model's Markdown, but escape HTML and images outside code, and close open fences. */
export function neutralizeMarkdown(text) {
  let fence = null;
  const lines = escapeControls(text)
    .split("\n")
    .map((line) => {
      if (fence === null) {
        fence = FENCE_START.exec(line)?.[1] ?? null;
        return fence === null ? neutralizeLine(line) : line;
      }
      const end = /^ {0,3}(`{3,}|~{3,})[ \t]*$/.exec(line)?.[1];
      if (end && end[0] === fence[0] && end.length >= fence.length) fence = null;
      return line;
    });
  return [...lines, ...(fence === null ? [] : [fence])].join("\n");
}

/** Escape what a viewer would run or load, outside code spans. */
function neutralizeLine(line) {
  let result = "";
  let at = 0;
  for (const code of line.matchAll(CODE_SPAN)) {
    result += neutralizeSpan(line.slice(at, code.index)) + code[0];
    at = code.index + code[0].length;
  }
  return result + neutralizeSpan(line.slice(at));
}

const neutralizeSpan = (text) => text.replace(/<(?=[a-z/!?])/gi, "&lt;").replace(/!(?=\[)/g, "&#33;");

/** Escape a person's text: it is no Markdown. Line breaks stay. */
export function escapeText(text) {
  const line = (words) => escapeInline(words.trim()).replace(LIST_START, "$1\\$2");
  const paragraph = (lines) => lines.split("\n").map(line).join("\\\n");
  return text
    .trim()
    .split(/\n\s*\n/)
    .map(paragraph)
    .join("\n\n");
}

const LIST_START = /^(\d*)([-+=.)])/; // would start a list or underline a heading

const writeJson = (value) =>
  typeof value === "string" ? fenceCode(value) : fenceCode(JSON.stringify(value, null, 2), "json");
const quoteBlock = (text) => text.replace(/^/gm, "> ").replace(/^> $/gm, ">");
const joinParagraphs = (...parts) => parts.filter(Boolean).join("\n\n");
const bold = (text) => `**${escapeInline(text)}**`;
const note = (text) => `_${escapeInline(text)}_`;
const writeValue = (name, given) => given != null && joinParagraphs(`${name}:`, writeJson(given));
const writeError = ({ code, message }) => `${bold(code)} ${escapeInline(message)}`;

function writeMessage({ speaker, author, target, channel, text, files }, people) {
  const { me, displayName } = people;
  const isMine = (speaker ?? author ?? me) === me;
  const who = isMine ? "You" : (speaker ?? displayName(author));
  const to = [target && `to ${escapeInline(target)}`, channel && `in ${escapeInline(channel)}`];
  return joinParagraphs([bold(who), ...to].filter(Boolean).join(" "), escapeText(text), writeFiles(files));
}

const writeFiles = (files) =>
  files.length > 0 && note(`Files: ${files.map(({ filename }) => filename ?? "a file").join(", ")}`);

function writeText({ speaker, agent_name, text, aborted, citations }) {
  const sources = citations.map(({ title, document_title, url, source, cited_text }, at) => {
    const where = [title ?? document_title ?? "Source", url ?? source, cited_text && `“${cited_text}”`];
    return `${at + 1}. ${where.filter(Boolean).map(escapeInline).join(", ")}`;
  });
  const said = [
    neutralizeMarkdown(text),
    aborted && ABORT_LABELS[aborted] && note(ABORT_LABELS[aborted]),
    sources.join("\n"),
  ];
  return joinParagraphs(bold(speaker ?? agent_name ?? "Assistant"), ...said);
}

function writeThinking({ text, redacted }) {
  return redacted
    ? note("Thinking (hidden by the provider)")
    : joinParagraphs(note("Thinking"), quoteBlock(escapeText(text)));
}

const by = (words, actor, people) => (actor ? words + people.displayName(actor) : "");

function writeCall(entry, people) {
  const { tool, state, args, incomplete, input, decision, answer, child, agents, inside: entries, result } = entry;
  const said = decision && `${DECISION_LABELS[decision.decision]}${by(" by ", decision.actor, people)}`;
  const inside = agents.length > 0 && quoteBlock(joinParagraphs(child && bold(child), writeEntries(entries, people)));
  return joinParagraphs(
    `${bold(humanizeName(tool))} (${escapeInline(tool)}) ${CALL_STATES[state][0]}`,
    writeValue("Arguments", args),
    writeValue("Arguments, incomplete", incomplete),
    writeValue("Given", input),
    answer && note(answerLabel(entry) + by(", ", answer.actor, people)),
    said && note(decision.notes ? `${said}: ${decision.notes}` : said),
    inside,
    writeValue("Result", result?.result),
    result?.error && writeError(result.error),
    ...(result?.images ?? []).map(({ media_type }) => note(`An image: ${media_type}`)),
  );
}

const ENTRY_WRITERS = {
  message: writeMessage,
  text: writeText,
  thinking: writeThinking,
  call: writeCall,
  agent: ({ child, inside }, people) => joinParagraphs(bold(child), quoteBlock(writeEntries(inside, people))),
  view: ({ view, over, actions }, people) =>
    joinParagraphs(
      `${bold(view.title ?? view.view_id)} ${over ?? ""}`.trim(),
      writeJson(view.tree),
      ...actions.map(({ actor, action }) =>
        joinParagraphs(
          note(actionLabel(people.displayName(actor), action, view.tree)),
          writeValue("Given", action.values),
        ),
      ),
    ),
  handoff: ({ agent_name, to }) => note(`${agent_name ?? "The agent"} handed over to ${to}`),
  files: ({ files }) => writeFiles(files),
  error: ({ payload }) => writeError(payload),
  end: (entry, people) => note(endLabel({ ...entry, by: people.displayName(entry.by) })),
  action: ({ actor, payload }, people) => note(actionLabel(people.displayName(actor), payload.action)),
  command: ({ actor, payload }, people) => note(commandLabel(people.displayName(actor), payload.command)),
  restart: () => note("The server was restarted"),
};

const writeEvent = ({ type, payload }) => joinParagraphs(bold(type), writeJson(payload));

const writeEntries = (entries, people) =>
  entries.map((entry) => (ENTRY_WRITERS[entry.kind] ?? writeEvent)(entry, people)).join("\n\n");

/**
 * Export a conversation under a title; queued messages come last. `people.me` is the exporting principal,
 * `people.displayName` maps principals to names.
 */
export function exportMarkdown({ entries, queue }, title, people) {
  const queued = queue.map((entry) => joinParagraphs(note("Queued"), writeMessage(entry, people)));
  return `${joinParagraphs(`# ${escapeInline(title)}`, writeEntries(entries, people), ...queued)}\n`;
}

/** Return a file name that every system accepts. */
export const exportFileName = (title, ending) =>
  `${
    title
      .normalize("NFKD")
      .replace(/\p{M}+/gu, "")
      .replace(/[^\w-]+/g, "-")
      .replace(/^-+|-+$/g, "")
      .slice(0, 60) || "session"
  }.${ending}`;
