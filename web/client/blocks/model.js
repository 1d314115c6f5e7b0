/**
 * What an `Assembler` has put together: agents, their blocks, the sources of a text; as JSON and as text.
 *
 * A block knows its state (`complete`, `void`) and what hangs on it. JSON and transcript are the same as those
 * of `turnlog.wire.assembled` in Python.
 */

import { replaceSurrogates, textField } from "./json.js";

export const RESULT_TYPES = new Set(["tool_result", "server_tool_result"]);
const TITLE_FIELDS = ["document_title", "title", "url"];

/** A source of a text; `fields` are its kind and place under the names of the wire. */
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

/** What is known of one agent. `order` gives its blocks as they opened, results too. */
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

  /** What the agent is called; nothing if nobody said. */
  get name() {
    return textField(this.meta_init, "agent_name") ?? "";
  }

  /** The calls that the agent last waited for and that have no result since. */
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

/** Whether a block says what an agent waits for, in a way that can be read. */
const isWait = (block) => block.type === "awaiting_frontend_tools" && Array.isArray(block.value);

/** Pieces as one text; they stay joined. The two halves of a character may have come in two pieces. */
function joinPieces(pieces) {
  const text = pieces.join("");
  pieces.splice(0, pieces.length, text);
  return replaceSurrogates(text);
}

/** The last block that is not void; void ones are let go. */
export function lastValid(blocks) {
  while (blocks.at(-1)?.void) blocks.pop();
  return blocks.at(-1) ?? null;
}

const CALL_PARTS = ["id", "name", "results"];
const RESULT_PARTS = ["id", "name", "text", "images"];

/** How a type is written and shown: `value` names its value in JSON, `named` the names in a list. */
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

/** A block as plain JSON; what could not be read as JSON is `raw`. */
export function blockJson(block) {
  const shape = BLOCK_FORMATS.get(block.type);
  const parts = Object.fromEntries(shape.parts.map((part) => [part, PART_READERS.get(part)(block)]));
  if (shape.value !== "") {
    if (block.value === undefined) parts.raw = block.text;
    else parts[shape.value] = block.value;
  }
  return { type: block.type, agent: block.agent, ...parts, complete: block.complete };
}

/** Everything for people, one agent after the other. */
export const transcriptLines = (agents) => [...agents.values()].flatMap((agent) => agentLines(agent, agents));

/** One agent: who it is and who called it, what it was asked, what it said, how it ended. */
function agentLines(agent, agents) {
  const keys = ["model", "parent_agent_uuid", "user_query"];
  const [model, parentId, query] = keys.map((key) => textField(agent.meta_init, key));
  const caller = parentId && `called by ${agents.get(parentId)?.name || parentId}`;
  const reason = textField(agent.meta_final, "stop_reason");
  const over = agent.finishedWaits();
  const labelOf = (block) => (over.has(block) ? "waited for" : "");
  return [
    [agent.name, `[${agent.id}]`, model, caller].filter(Boolean).join(" ").replaceAll("\n", "\n  "),
    ...(query ? [formatLine("user", query)] : []),
    ...agent.order.filter((block) => !block.call).flatMap((block) => blockLines(block, "", labelOf(block))),
    ...(reason ? [formatLine("end", reason)] : []),
  ];
}

/** A block, and below it what hangs on it. */
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

/** A labelled text; its further lines are indented below the label. */
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
