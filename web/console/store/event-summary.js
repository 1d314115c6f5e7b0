/**
 * An event in one line: its family, which gives the colour, and a summary of its payload. Pure.
 *
 * A summary reads only the beginning of a payload: a result of a megabyte costs no more than a word. Types that are
 * not in the table, such as an application's own, are shown as compact JSON.
 */

import { plural } from "./labels.js";
import { oneLine } from "./one-line.js";

const MAX_LINE_CHARS = 240;

export function summarizeEvent({ type, payload }) {
  const say = SUMMARIES[type] ?? compactJson;
  return oneLine(say(payload ?? {}), MAX_LINE_CHARS);
}

/**
 * Return the first word of a type, or `error` for a failure, or `own` for an application's type. Rows are coloured by
 * it.
 */
export function eventFamily({ type, payload }) {
  if (IS_ERROR[type]?.(payload)) return "error";
  const first = type.split(".")[0];
  return FAMILIES.has(first) ? first : "own";
}

/** Return compact JSON of about `room` characters; the rest is cut. */
export function compactJson(value, room = MAX_LINE_CHARS) {
  if (typeof value === "string") return JSON.stringify(value.slice(0, room));
  if (value === null || typeof value !== "object") return String(value);
  return Array.isArray(value) ? compactList(value, room) : compactObject(value, room);
}

function compactList(values, room) {
  let text = "[";
  for (const value of values) {
    if (text.length > 1) text += ",";
    if (text.length >= room) return text;
    text += compactJson(value, room - text.length);
  }
  return `${text}]`;
}

function compactObject(values, room) {
  let text = "{";
  for (const key in values) {
    if (text.length > 1) text += ",";
    if (text.length >= room) return text;
    text += `${JSON.stringify(key)}:${compactJson(values[key], room - text.length)}`;
  }
  return `${text}}`;
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

/** By type: whether an event is a failure. */
const IS_ERROR = {
  __proto__: null, // a type may be named like a member of Object.prototype
  "session.error": () => true,
  "parse.reject": () => true,
  "tool.result": ({ ok }) => !ok,
  "agent.end": ({ stop_reason }) => stop_reason === "error" || stop_reason === "timeout",
  "process.end": ({ reason }) => reason === "process_crash",
};

const clip = (text) => (text ?? "").slice(0, 2 * MAX_LINE_CHARS);
const joinParts = (...parts) => parts.filter((part) => part !== undefined && part !== null && part !== "").join(" · ");
const tokensText = (usage) => usage && `${usage.input_tokens} in, ${usage.output_tokens} out`;
const costText = (cost) => cost && `$${cost.total_cost}`;
const joinNames = (things, name) => things.map(name).join(", ");
const outcomeText = ({ ok, result, error }) => (ok ? compactJson(result) : `${error?.code}: ${clip(error?.message)}`);

const SUMMARIES = {
  __proto__: null,
  "process.start": ({ process, pid, model }) => joinParts(`${process} ${pid}`, model),
  "process.end": ({ process, reason, exit_code }) => joinParts(process, reason, exit_code && `exit code ${exit_code}`),
  "process.auth": ({ method, needs_setup }) => joinParts(method, needs_setup && "needs setup"),
  "session.error": ({ code, message }) => `${code}: ${clip(message)}`,
  "session.member": ({ principal, roles = [] }) => `${principal}: ${roles.join(", ") || "no role"}`,
  "session.invite": ({ principal, roles }) => `${principal ?? "link"}: ${roles.join(", ")}`,
  "session.invite_end": ({ invite_id, reason }) => joinParts(invite_id, reason),
  "session.title": ({ title }) => clip(title),
  "session.close": ({ by, reason }) => joinParts(`by ${by}`, clip(reason)),
  "ui.message": ({ text, target }) => joinParts(target && `to ${target}`, clip(text)),
  "ui.action": ({ action: { kind, ...rest } }) => joinParts(kind, compactJson(rest)),
  "ui.command": ({ command: { kind, ...rest } }) => joinParts(kind, compactJson(rest)),
  "agent.start": ({ via, model, prompt }) => joinParts(via, model, clip(prompt)),
  "agent.end": ({ stop_reason, steps, result }) => joinParts(stop_reason, steps && plural(steps, "step"), clip(result)),
  "agent.handoff": ({ to }) => `to ${to}`,
  "agent.usage": ({ model, usage, cost }) => joinParts(model, tokensText(usage), costText(cost)),
  "context.compact": ({ tokens_before, tokens_after }) => `${tokens_before ?? "?"} to ${tokens_after ?? "?"} tokens`,
  "agent.checkpoint": ({ source, version, paused, size_bytes }) =>
    joinParts(`${source} ${version}`, paused ? "paused" : null, size_bytes == null ? null : `${size_bytes} bytes`),
  "block.start": ({ kind, tool }) => joinParts(kind, tool),
  "block.end": ({ status, text }) => joinParts(status, clip(text)),
  "block.retract": ({ block_ids, reason }) => joinParts(plural(block_ids.length, "block"), reason),
  "assistant.message": ({ text, speaker }) => joinParts(speaker, clip(text)),
  "assistant.thinking": ({ text, redacted }) => (redacted && !text ? "redacted" : clip(text)),
  "assistant.block": ({ kind, data }) => joinParts(kind, compactJson(data)),
  "assistant.view": ({ view }) => joinParts(view.view_id, view.title, compactJson(view.tree)),
  "assistant.files": ({ files }) => joinNames(files, ({ filename }) => filename),
  "tool.call": ({ tool, args, incomplete }) => `${tool} ${incomplete ? clip(incomplete) : compactJson(args)}`,
  "tool.result": ({ tool, ...rest }) => `${tool} ${outcomeText(rest)}`,
  "tool.await": ({ calls }) => joinNames(calls, ({ tool, args }) => `${tool} ${compactJson(args)}`),
  "approval.request": ({ tool, risk, reason }) => joinParts(tool, risk, clip(reason)),
  "approval.decision": ({ decision, notes }) => joinParts(decision, clip(notes)),
  "parse.reject": ({ reason, name, length }) => joinParts(name, clip(reason), plural(length, "character")),
  "roster.join": ({ name, seat }) => `${name}, seat ${seat}`,
  "roster.status": ({ agents }) => joinNames(agents, ({ name, status }) => `${name} ${status}`),
  "roster.offer": ({ agent, jobs }) => `${agent}: ${jobs.join(", ")}`,
  "artifact.write": ({ filename, is_new, size_bytes }) =>
    joinParts(filename, is_new && "new", plural(size_bytes, "byte")),
  "screen.command": ({ command, expression }) => joinParts(command, expression),
};
