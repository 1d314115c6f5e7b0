/**
 * What an `Assembler` has put together: agents, their blocks, the sources of a text; as JSON and as text.
 *
 * A block knows its state (`complete`, `void`) and what hangs on it. JSON and transcript are the same as those
 * of `turnlog.wire.assembled` in Python.
 */

import { clean, textIn } from "./json.js";

export const RESULTS = new Set(["tool_result", "server_tool_result"]);
const TITLES = ["document_title", "title", "url"];

/** A source of a text; `fields` are its kind and place under the names of the wire. */
export class Citation {
  /** @internal */ pieces = [];

  constructor(fields) {
    this.fields = fields;
  }

  get cited_text() {
    return joined(this.pieces);
  }
}

/**
 * One block. `value` is what its text says as JSON once it is complete, else undefined.
 *
 * `complete` is false while it is open and stays so when the stream ends early. A `void` block was taken
 * back. A result knows its `call`, if there was one, and is listed in the call's `results`.
 */
export class Block {
  complete = false;
  void = false;
  value = undefined;
  citations = [];
  images = [];
  call = null;
  /** @internal */ held = new Set();
  /** @internal */ pieces = [];

  constructor(type, agent, id = null, name = null) {
    this.type = type;
    this.agent = agent;
    this.id = id;
    this.name = name;
  }

  get text() {
    return joined(this.pieces);
  }

  get results() {
    return [...this.held];
  }
}

/** What is known of one agent. `order` gives its blocks as they opened, results too. */
export class Agent {
  meta_init = null;
  meta_final = null;
  /** @internal */ placed = new Set();
  /** @internal those of the model */ spoken = [];
  /** @internal */ open = new Map();
  /** @internal complete ones */ texts = [];
  /** @internal */ calls = new Map();
  /** @internal the citation that a chunk may continue */ cited = null;

  constructor(id) {
    this.id = id;
  }

  get order() {
    return [...this.placed];
  }

  /** What the agent is called; nothing if nobody said. */
  get name() {
    return textIn(this.meta_init, "agent_name") ?? "";
  }

  /** The calls that the agent last waited for and that have no result since. */
  pending() {
    const answered = new Set();
    for (const block of this.order.reverse()) {
      if (RESULTS.has(block.type)) {
        answered.add(block.id);
      } else if (waited(block)) {
        const calls = block.value.filter((call) => !answered.has(call.tool_use_id));
        return calls.map((call) => ({ ...call, agent: this.id }));
      }
    }
    return [];
  }

  /** @internal The waits that have ended: all but the last, and that too when every call is answered. */
  over() {
    const waits = this.order.filter(waited);
    return new Set(this.pending().length > 0 ? waits.slice(0, -1) : waits);
  }
}

/** Whether a block says what an agent waits for, in a way that can be read. */
const waited = (block) => block.type === "awaiting_frontend_tools" && Array.isArray(block.value);

/** Pieces as one text; they stay joined. The two halves of a character may have come in two pieces. */
function joined(pieces) {
  const text = pieces.join("");
  pieces.splice(0, pieces.length, text);
  return clean(text);
}

/** The last block that is not void; void ones are let go. */
export function lastOf(blocks) {
  while (blocks.at(-1)?.void) blocks.pop();
  return blocks.at(-1) ?? null;
}

const CALL = ["id", "name", "results"];
const RESULT = ["id", "name", "text", "images"];

/** How a type is written and shown: `value` names its value in JSON, `named` the names in a list. */
const shapeOf = (label, parts, value = "", named = "") => ({ label, parts, value, named });

const SHAPES = new Map([
  ["text", shapeOf("text", ["text", "citations"])],
  ["thinking", shapeOf("thinking", ["text"])],
  ["tool_call", shapeOf("call", CALL, "args")],
  ["server_tool_call", shapeOf("provider call", CALL, "args")],
  ["tool_result", shapeOf("result", RESULT)],
  ["server_tool_result", shapeOf("provider result", RESULT)],
  ["awaiting_frontend_tools", shapeOf("waiting for", [], "calls", "name")],
  ["meta_files", shapeOf("files", [], "files", "filename")],
  ["error", shapeOf("error", [], "error")],
]);

/** A block as plain JSON; what could not be read as JSON is `raw`. */
export function blockJson(block) {
  const shape = SHAPES.get(block.type);
  const parts = Object.fromEntries(shape.parts.map((part) => [part, PARTS.get(part)(block)]));
  if (shape.value !== "") {
    if (block.value === undefined) parts.raw = block.text;
    else parts[shape.value] = block.value;
  }
  return { type: block.type, agent: block.agent, ...parts, complete: block.complete };
}

/** Everything for people, one agent after the other. */
export const transcript = (agents) => [...agents.values()].flatMap((agent) => agentLines(agent, agents));

/** One agent: who it is and who called it, what it was asked, what it said, how it ended. */
function agentLines(agent, agents) {
  const keys = ["model", "parent_agent_uuid", "user_query"];
  const [model, parentId, query] = keys.map((key) => textIn(agent.meta_init, key));
  const caller = parentId && `called by ${agents.get(parentId)?.name || parentId}`;
  const reason = textIn(agent.meta_final, "stop_reason");
  const over = agent.over();
  const labelOf = (block) => (over.has(block) ? "waited for" : "");
  return [
    [agent.name, `[${agent.id}]`, model, caller].filter(Boolean).join(" ").replaceAll("\n", "\n  "),
    ...(query ? [lineOf("user", query)] : []),
    ...agent.order.filter((block) => !block.call).flatMap((block) => blockLines(block, "", labelOf(block))),
    ...(reason ? [lineOf("end", reason)] : []),
  ];
}

/** A block, and below it what hangs on it. */
function blockLines(block, indent = "", label = "") {
  const shape = SHAPES.get(block.type);
  const deeper = `${indent}  `;
  const items = shape.named !== "" && Array.isArray(block.value) ? block.value : [];
  const text = items.map((item) => textIn(item, shape.named) ?? "?").join(", ") || block.text;
  const name = block.name && !block.call ? ` ${block.name}` : "";
  return [
    lineOf((label || shape.label) + name + (block.complete ? "" : " (incomplete)"), text, indent),
    ...block.citations.map((citation) => lineOf("cited", citedLine(citation), deeper)),
    ...block.images.map((image) => lineOf("image", image.src, deeper)),
    ...block.results.flatMap((result) => blockLines(result, deeper)),
  ];
}

function citedLine(citation) {
  const title = TITLES.map((key) => textIn(citation.fields, key)).find((text) => text !== null);
  return title ? `${citation.cited_text} (${title})` : citation.cited_text;
}

/** A labelled text; its further lines are indented below the label. */
const lineOf = (label, text, indent = "") =>
  `${indent}${label}:${text ? " " : ""}${text}`.replaceAll("\n", `\n${indent}  `);

const PARTS = new Map([
  ["id", (block) => block.id],
  ["name", (block) => block.name],
  ["text", (block) => block.text],
  ["images", (block) => block.images],
  ["citations", (block) => block.citations.map((item) => ({ ...item.fields, cited_text: item.cited_text }))],
  ["results", (block) => block.results.map(blockJson)],
]);
