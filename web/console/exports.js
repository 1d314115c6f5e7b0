/**
 * A conversation as Markdown, for a file: what the chat shows, in the same order, nested in the same way.
 *
 * Texts of the model stay Markdown, but whoever opens the file runs no HTML and loads no image of theirs
 * (`prose`). Everything else stands in fences longer than any inside. Characters that control a terminal or
 * the direction of writing are spelled out.
 */

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
export const plain = (text) => visible(text).replace(/\s+/g, " ").replace(/[\\`*_[\]<>#|!&~]/g, "\\$&");

const OPENS = /^(`{3,}(?=[^`]*$)|~{3,})/; // only where no list or quotation can end it
const CODE = /(?<![\\`])(`+)(?!`)[^|]*?(?<!`)\1(?!`)/g; // within one line; a bar may end a cell of a table

/** Markdown of the model: HTML and images are shown as they were written, outside code; fences are closed. */
export function prose(text) {
  let fence = null;
  const lines = visible(text).split("\n").map((line) => {
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

const json = (value) => fenced(JSON.stringify(value, null, 2), "json");
const quoted = (text) => text.replace(/^/gm, "> ").replace(/^> $/gm, ">");
const titled = (title, ...rest) => [title, ...rest].filter(Boolean).join("\n\n");

const KINDS = {
  message: ({ payload }) => titled(`**${plain(payload.speaker ?? "You")}**`, prose(payload.text)),
  text: ({ speaker, agent_name, text, aborted }) =>
    titled(`**${plain(speaker ?? agent_name ?? "Assistant")}**`, prose(text), aborted && "_Broken off_"),
  thinking: ({ text, redacted }) => titled("_Thinking_", redacted ? "" : quoted(prose(text))),
  call: (call) => titled(
    `**${plain(call.tool)}** (${call.state})`,
    json(call.args ?? {}), call.flow.entries.length > 0 && quoted(flow(call.flow)), call.result && outcome(call.result),
  ),
  agent: (entry) => titled(`**${plain(entry.payload.name)}**`, quoted(flow(entry.flow))),
  view: ({ view }) => titled(`**${plain(view.title ?? view.view_id)}** (view)`, json(view.tree)),
  handoff: ({ payload }) => `_Handed over to ${plain(payload.to)}_`,
  error: ({ payload }) => `**Error** ${plain(payload.message)}`,
  files: ({ payload }) => titled("**Files**", payload.files.map(({ filename }) => `- ${plain(filename)}`).join("\n")),
  end: ({ payload, agent_name }) => `_${plain(agent_name ?? "Agent")}: ${plain(payload.stop_reason)}_`,
};

const outcome = ({ ok, result, error }) => {
  if (!ok) return `**Error** ${plain(`${error.code}: ${error.message}`)}`;
  return typeof result === "string" ? fenced(result) : json(result);
};

const told = (entry) => (KINDS[entry.kind] ?? (({ type, payload }) => titled(`_${plain(type)}_`, json(payload))))(entry);

const flow = ({ entries }) => entries.map(told).join("\n\n");

/** The whole conversation (`conversation.js`) under a title. */
export const markdown = (conversation, title) => `${titled(`# ${plain(title)}`, flow(conversation.flow))}\n`;

/** A name for a file that every system takes. */
export const fileName = (title, ending) =>
  `${title.normalize("NFKD").replace(/[^\w-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "session"}.${ending}`;
