/**
 * The result of an `Assembler`: agents, their blocks and citations, as objects, as JSON and as a transcript.
 *
 * JSON and transcript are byte for byte those of the Python client.
 */

import { replaceSurrogates, textField } from "./json.js";

export const RESULT_TYPES = new Set(["tool_result", "server_tool_result"]);
const TITLE_FIELDS = ["document_title", "title", "url"];

/** A source of a text; `fields` have the names of the wire. */
export class BlockCitation {
  /** @internal */ pieces = [];

  constructor(fields) {
    this.fields = fields;
  }

  get cited_text() {
    return joinPieces(this.pieces);
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
  /** @internal */ resultBlocks = new Set();
  /** @internal */ pieces = [];

  constructor(type, agent, id = null, name = null) {
    this.type = type;
    this.agent = agent;
    this.id = id;
    this.name = name;
  }

  get text() {
    return joinPieces(this.pieces);
  }

  get results() {
    return [...this.resultBlocks];
  }
}

/** One agent. `order` has its blocks and results as they opened. */
export class Agent {
  meta_init = null;
  meta_final = null;
  /** @internal */ allBlocks = new Set();
  /** @internal those of the model */ modelBlocks = [];
  /** @internal */ open = new Map();
  /** @internal complete ones */ texts = [];
  /** @internal */ calls = new Map();
  /** @internal the citation that a chunk may continue */ openCitation = null;

  constructor(id) {
    this.id = id;
  }

  get order() {
    return [...this.allBlocks];
  }

  /** The agent's name, or "". */
  get name() {
    return textField(this.meta_init, "agent_name") ?? "";
  }

  /** Return the unanswered calls of the agent's last wait. */
  pending() {
    const answered = new Set();
    for (const block of this.order.reverse()) {
      if (RESULT_TYPES.has(block.type)) {
        answered.add(block.id);
      } else if (isWait(block)) {
        const calls = block.value.filter((call) => !answered.has(call.tool_use_id));
        return calls.map((call) => ({ ...call, agent: this.id }));
      }
    }
    return [];
  }

  /** @internal The waits that have ended: all but the last, and that too when every call is answered. */
  finishedWaits() {
    const waits = this.order.filter(isWait);
    return new Set(this.pending().length > 0 ? waits.slice(0, -1) : waits);
  }
}

/** Whether a block is a valid list of awaited calls. */
const isWait = (block) => block.type === "awaiting_frontend_tools" && Array.isArray(block.value);

/** Join pieces in place and return the text. A surrogate pair may be split over two pieces. */
function joinPieces(pieces) {
  const text = pieces.join("");
  pieces.splice(0, pieces.length, text);
  return replaceSurrogates(text);
}

/** Return the last block that is not void, or null; void ones at the end are removed. */
export function lastValid(blocks) {
  while (blocks.at(-1)?.void) blocks.pop();
  return blocks.at(-1) ?? null;
}

const CALL_PARTS = ["id", "name", "results"];
const RESULT_PARTS = ["id", "name", "text", "images"];

/**
 * The format of a type: label, parts in JSON, `value` the name of its value in JSON, `named` the name field of list
 * items.
 */
const blockFormat = (label, parts, value = "", named = "") => ({ label, parts, value, named });

const BLOCK_FORMATS = new Map([
  ["text", blockFormat("text", ["text", "citations"])],
  ["thinking", blockFormat("thinking", ["text"])],
  ["tool_call", blockFormat("call", CALL_PARTS, "args")],
  ["server_tool_call", blockFormat("provider call", CALL_PARTS, "args")],
  ["tool_result", blockFormat("result", RESULT_PARTS)],
  ["server_tool_result", blockFormat("provider result", RESULT_PARTS)],
  ["awaiting_frontend_tools", blockFormat("waiting for", [], "calls", "name")],
  ["meta_files", blockFormat("files", [], "files", "filename")],
  ["error", blockFormat("error", [], "error")],
]);

/** Return a block as JSON; a value that is no JSON is `raw`. */
export function blockJson(block) {
  const shape = BLOCK_FORMATS.get(block.type);
  const parts = Object.fromEntries(shape.parts.map((part) => [part, PART_READERS.get(part)(block)]));
  if (shape.value !== "") {
    if (block.value === undefined) parts.raw = block.text;
    else parts[shape.value] = block.value;
  }
  return { type: block.type, agent: block.agent, ...parts, complete: block.complete };
}

export const transcriptLines = (agents) => [...agents.values()].flatMap((agent) => agentLines(agent, agents));

function agentLines(agent, agents) {
  const keys = ["model", "parent_agent_uuid", "user_query"];
  const [model, parentId, query] = keys.map((key) => textField(agent.meta_init, key));
  const caller = parentId && `called by ${agents.get(parentId)?.name || parentId}`;
  const reason = textField(agent.meta_final, "stop_reason");
  const over = agent.finishedWaits();
  const labelFor = (block) => (over.has(block) ? "waited for" : "");
  return [
    [agent.name, `[${agent.id}]`, model, caller].filter(Boolean).join(" ").replaceAll("\n", "\n  "),
    ...(query ? [formatLine("user", query)] : []),
    ...agent.order.filter((block) => !block.call).flatMap((block) => blockLines(block, "", labelFor(block))),
    ...(reason ? [formatLine("end", reason)] : []),
  ];
}

/** Return the lines of a block, with citations, images and results indented below. */
function blockLines(block, indent = "", label = "") {
  const shape = BLOCK_FORMATS.get(block.type);
  const deeper = `${indent}  `;
  const items = shape.named !== "" && Array.isArray(block.value) ? block.value : [];
  const text = items.map((item) => textField(item, shape.named) ?? "?").join(", ") || block.text;
  const name = block.name && !block.call ? ` ${block.name}` : "";
  return [
    formatLine((label || shape.label) + name + (block.complete ? "" : " (incomplete)"), text, indent),
    ...block.citations.map((citation) => formatLine("cited", citationText(citation), deeper)),
    ...block.images.map((image) => formatLine("image", image.src, deeper)),
    ...block.results.flatMap((result) => blockLines(result, deeper)),
  ];
}

function citationText(citation) {
  const title = TITLE_FIELDS.map((key) => textField(citation.fields, key)).find((text) => text !== null);
  return title ? `${citation.cited_text} (${title})` : citation.cited_text;
}

/** Return a labelled text; further lines are indented. */
const formatLine = (label, text, indent = "") =>
  `${indent}${label}:${text ? " " : ""}${text}`.replaceAll("\n", `\n${indent}  `);

const PART_READERS = new Map([
  ["id", (block) => block.id],
  ["name", (block) => block.name],
  ["text", (block) => block.text],
  ["images", (block) => block.images],
  ["citations", (block) => block.citations.map((item) => ({ ...item.fields, cited_text: item.cited_text }))],
  ["results", (block) => block.results.map(blockJson)],
]);
