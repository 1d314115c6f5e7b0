/**
 * An event in one line: its family, which gives the colour, and what its payload says.
 *
 * Pure. A line is made from the beginning of a payload only: a result of a megabyte costs no more than a word.
 * Types that are not in the table, those of applications too, are shown as compact JSON.
 */

const LINE_CHARS = 240;

/** What an event says, on one line, cut. */
export function summary({ type, payload }) {
  const say = SUMMARIES[type] ?? compact;
  return oneLine(say(payload ?? {}));
}

/** The first word of a type, or `error` for what went wrong: what rows are coloured by. */
export function family({ type, payload }) {
  if (FAULTS[type]?.(payload)) return "error";
  const first = type.split(".")[0];
  return FAMILIES.has(first) ? first : "own";
}

/** JSON of a value without spaces, as far as `room` characters go. */
export function compact(value, room = LINE_CHARS) {
  if (typeof value === "string") return JSON.stringify(value.slice(0, room));
  if (value === null || typeof value !== "object") return String(value);
  return Array.isArray(value) ? list(value, room) : object(value, room);
}

function list(values, room) {
  let text = "[";
  for (const value of values) {
    if (text.length > 1) text += ",";
    if (text.length >= room) return text;
    text += compact(value, room - text.length);
  }
  return `${text}]`;
}

function object(values, room) {
  let text = "{";
  for (const key in values) {
    if (text.length > 1) text += ",";
    if (text.length >= room) return text;
    text += `${JSON.stringify(key)}:${compact(values[key], room - text.length)}`;
  }
  return `${text}}`;
}

function oneLine(text) {
  const line = text
    .slice(0, 2 * LINE_CHARS)
    .replace(/\s+/g, " ")
    .trim();
  return line.length > LINE_CHARS ? `${line.slice(0, LINE_CHARS - 1)}…` : line;
}

const FAMILIES = new Set([
  "process",
  "session",
  "ui",
  "agent",
  "context",
  "block",
  "assistant",
  "tool",
  "approval",
  "parse",
]);

/** When an event tells of a fault. */
const FAULTS = {
  __proto__: null, // a type may be called like what every object has
  "session.error": () => true,
  "parse.reject": () => true,
  "tool.result": ({ ok }) => !ok,
  "agent.end": ({ stop_reason }) => stop_reason === "error" || stop_reason === "timeout",
  "process.end": ({ reason }) => reason === "process_crash",
};

const start = (text) => (text ?? "").slice(0, 2 * LINE_CHARS);
const words = (...parts) => parts.filter((part) => part !== undefined && part !== null && part !== "").join(" · ");
const count = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;
const tokens = (usage) => usage && `${usage.input_tokens} in, ${usage.output_tokens} out`;
const price = (cost) => cost && `$${cost.total_cost}`;
const names = (things, name) => things.map(name).join(", ");
const outcome = ({ ok, result, error }) => (ok ? compact(result) : `${error?.code}: ${start(error?.message)}`);

const SUMMARIES = {
  __proto__: null,
  "process.start": ({ process, pid, model }) => words(`${process} ${pid}`, model),
  "process.end": ({ process, reason, exit_code }) => words(process, reason, exit_code && `exit code ${exit_code}`),
  "process.auth": ({ method, needs_setup }) => words(method, needs_setup && "needs setup"),
  "session.error": ({ code, message }) => `${code}: ${start(message)}`,
  "session.member": ({ principal, roles = [] }) => `${principal}: ${roles.join(", ") || "no role"}`,
  "session.invite": ({ principal, roles }) => `${principal ?? "link"}: ${roles.join(", ")}`,
  "session.invite_end": ({ invite_id, reason }) => words(invite_id, reason),
  "session.title": ({ title }) => start(title),
  "ui.message": ({ text, target }) => words(target && `to ${target}`, start(text)),
  "ui.action": ({ action: { kind, ...rest } }) => words(kind, compact(rest)),
  "ui.command": ({ command: { kind, ...rest } }) => words(kind, compact(rest)),
  "agent.start": ({ via, model, prompt }) => words(via, model, start(prompt)),
  "agent.end": ({ stop_reason, steps, result }) => words(stop_reason, steps && count(steps, "step"), start(result)),
  "agent.handoff": ({ to }) => `to ${to}`,
  "agent.usage": ({ model, usage, cost }) => words(model, tokens(usage), price(cost)),
  "context.compact": ({ tokens_before, tokens_after }) => `${tokens_before ?? "?"} to ${tokens_after ?? "?"} tokens`,
  "block.start": ({ kind, tool }) => words(kind, tool),
  "block.end": ({ status, text }) => words(status, start(text)),
  "block.retract": ({ block_ids, reason }) => words(count(block_ids.length, "block"), reason),
  "assistant.message": ({ text, speaker }) => words(speaker, start(text)),
  "assistant.thinking": ({ text, redacted }) => (redacted && !text ? "redacted" : start(text)),
  "assistant.block": ({ kind, data }) => words(kind, compact(data)),
  "assistant.view": ({ view }) => words(view.view_id, view.title, compact(view.tree)),
  "assistant.files": ({ files }) => names(files, ({ filename }) => filename),
  "tool.call": ({ tool, args, incomplete }) => `${tool} ${incomplete ? start(incomplete) : compact(args)}`,
  "tool.result": ({ tool, ...rest }) => `${tool} ${outcome(rest)}`,
  "tool.await": ({ calls }) => names(calls, ({ tool, args }) => `${tool} ${compact(args)}`),
  "approval.request": ({ tool, risk, reason }) => words(tool, risk, start(reason)),
  "approval.decision": ({ decision, notes }) => words(decision, start(notes)),
  "parse.reject": ({ reason, name, length }) => words(name, start(reason), count(length, "character")),
  "roster.join": ({ name, seat }) => `${name}, seat ${seat}`,
  "roster.status": ({ agents }) => names(agents, ({ name, status }) => `${name} ${status}`),
  "roster.offer": ({ agent, jobs }) => `${agent}: ${jobs.join(", ")}`,
  "artifact.write": ({ filename, is_new, size_bytes }) => words(filename, is_new && "new", count(size_bytes, "byte")),
  "screen.command": ({ command, expression }) => words(command, expression),
};
