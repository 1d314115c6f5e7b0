/**
 * The result of an `Assembler`: agents, their blocks and citations, as objects, as JSON and as a transcript.
 *
 * JSON and transcript are byte for byte those of the Python client.
 */

import type { Json } from "../events.js";
import type {
  BlockImage,
  BlockJson,
  BlockType,
  FrontendCall,
  JsonObject,
  PendingFrontendCall,
  Scalar,
} from "./block-json.js";
import { replaceSurrogates, textField } from "./json.js";

export const RESULT_TYPES: ReadonlySet<string> = new Set(["tool_result", "server_tool_result"]);
const TITLE_FIELDS = ["document_title", "title", "url"];

/** A source of a text; `fields` have the names of the wire. */
export class BlockCitation {
  readonly fields: { [key: string]: Scalar };
  /** @internal */ readonly pieces: string[] = [];

  constructor(fields: { [key: string]: Scalar }) {
    this.fields = fields;
  }

  get cited_text(): string {
    return joinPieces(this.pieces);
  }
}

/** One block; see `complete`, `void` and `value` for its state. */
export class Block {
  readonly type: BlockType;
  readonly agent: string;
  readonly id: string | null;
  readonly name: string | null;
  /** False while the block is open; stays so when the stream ends early. */
  readonly complete: boolean = false;
  /** The block was retracted. */
  readonly void: boolean = false;
  /** The JSON value of a complete block; undefined if its text is no JSON, or its type has none. */
  readonly value: Json | undefined = undefined;
  readonly citations: readonly BlockCitation[] = [];
  readonly images: readonly BlockImage[] = [];
  /** Of a result: its call, if there was one. */
  readonly call: Block | null = null;
  /** @internal */ readonly resultBlocks: Set<Block> = new Set();
  /** @internal */ readonly pieces: string[] = [];

  constructor(type: BlockType, agent: string, id: string | null = null, name: string | null = null) {
    this.type = type;
    this.agent = agent;
    this.id = id;
    this.name = name;
  }

  /** The text so far. */
  get text(): string {
    return joinPieces(this.pieces);
  }

  get results(): readonly Block[] {
    return [...this.resultBlocks];
  }
}

/** A citation that a chunk may continue. */
interface OpenCitation {
  index: number | null;
  text: Block;
  citation: BlockCitation;
}

/** One agent with its blocks. */
export class Agent {
  readonly id: string;
  readonly meta_init: JsonObject | null = null;
  readonly meta_final: JsonObject | null = null;
  /** @internal */ readonly allBlocks: Set<Block> = new Set();
  /** @internal those of the model */ readonly modelBlocks: Block[] = [];
  /** @internal */ readonly open: Map<string, Block> = new Map();
  /** @internal complete ones */ readonly texts: Block[] = [];
  /** @internal */ readonly calls: Map<string, Block[]> = new Map();
  /** @internal */ openCitation: OpenCitation | null = null;

  constructor(id: string) {
    this.id = id;
  }

  /** The agent's blocks and results, in the order in which they opened. */
  get order(): readonly Block[] {
    return [...this.allBlocks];
  }

  /** The agent's name, or "". */
  get name(): string {
    return textField(this.meta_init, "agent_name") ?? "";
  }

  /** Return the unanswered calls of the agent's last wait. */
  pending(): PendingFrontendCall[] {
    const answered = new Set<string | null>();
    for (const block of [...this.allBlocks].reverse()) {
      if (RESULT_TYPES.has(block.type)) {
        answered.add(block.id);
      } else if (isWait(block)) {
        const calls = (block.value as FrontendCall[]).filter((call) => !answered.has(call.tool_use_id));
        return calls.map((call) => ({ ...call, agent: this.id }));
      }
    }
    return [];
  }

  /** @internal The waits that have ended: all but the last, and that too when every call is answered. */
  finishedWaits(): Set<Block> {
    const waits = this.order.filter(isWait);
    return new Set(this.pending().length > 0 ? waits.slice(0, -1) : waits);
  }
}

/** Whether a block is a valid list of awaited calls. */
const isWait = (block: Block): boolean => block.type === "awaiting_frontend_tools" && Array.isArray(block.value);

/** Join pieces in place and return the text. A surrogate pair may be split over two pieces. */
function joinPieces(pieces: string[]): string {
  const text = pieces.join("");
  pieces.splice(0, pieces.length, text);
  return replaceSurrogates(text);
}

/** Return the last block that is not void, or null; void ones at the end are removed. */
export function lastValid(blocks: Block[]): Block | null {
  while (blocks.at(-1)?.void) blocks.pop();
  return blocks.at(-1) ?? null;
}

const PART_READERS = {
  id: (block: Block) => block.id,
  name: (block: Block) => block.name,
  text: (block: Block) => block.text,
  images: (block: Block) => block.images,
  citations: (block: Block) => block.citations.map((item) => ({ ...item.fields, cited_text: item.cited_text })),
  results: (block: Block) => block.results.map(blockJson),
};

type PartName = keyof typeof PART_READERS;

const CALL_PARTS: PartName[] = ["id", "name", "results"];
const RESULT_PARTS: PartName[] = ["id", "name", "text", "images"];

/**
 * The format of a type: label, parts in JSON, `value` the name of its value in JSON, `named` the name field of list
 * items.
 */
const blockFormat = (label: string, parts: PartName[], value = "", named = "") => ({ label, parts, value, named });

const BLOCK_FORMATS: { readonly [Type in BlockType]: ReturnType<typeof blockFormat> } = {
  text: blockFormat("text", ["text", "citations"]),
  thinking: blockFormat("thinking", ["text"]),
  tool_call: blockFormat("call", CALL_PARTS, "args"),
  server_tool_call: blockFormat("provider call", CALL_PARTS, "args"),
  tool_result: blockFormat("result", RESULT_PARTS),
  server_tool_result: blockFormat("provider result", RESULT_PARTS),
  awaiting_frontend_tools: blockFormat("waiting for", [], "calls", "name"),
  meta_files: blockFormat("files", [], "files", "filename"),
  error: blockFormat("error", [], "error"),
};

/** Return a block as JSON; a value that is no JSON is `raw`. */
export function blockJson(block: Block): BlockJson {
  const shape = BLOCK_FORMATS[block.type];
  const parts: { [name: string]: unknown } = Object.fromEntries(
    shape.parts.map((part) => [part, PART_READERS[part](block)]),
  );
  if (shape.value !== "") {
    if (block.value === undefined) parts.raw = block.text;
    else parts[shape.value] = block.value;
  }
  return { type: block.type, agent: block.agent, ...parts, complete: block.complete } as BlockJson;
}

export const transcriptLines = (agents: ReadonlyMap<string, Agent>): string[] =>
  [...agents.values()].flatMap((agent) => agentLines(agent, agents));

function agentLines(agent: Agent, agents: ReadonlyMap<string, Agent>): string[] {
  const model = textField(agent.meta_init, "model");
  const parentId = textField(agent.meta_init, "parent_agent_uuid");
  const query = textField(agent.meta_init, "user_query");
  const caller = parentId && `called by ${agents.get(parentId)?.name || parentId}`;
  const reason = textField(agent.meta_final, "stop_reason");
  const over = agent.finishedWaits();
  const labelFor = (block: Block) => (over.has(block) ? "waited for" : "");
  return [
    [agent.name, `[${agent.id}]`, model, caller].filter(Boolean).join(" ").replaceAll("\n", "\n  "),
    ...(query ? [formatLine("user", query)] : []),
    ...agent.order.filter((block) => !block.call).flatMap((block) => blockLines(block, "", labelFor(block))),
    ...(reason ? [formatLine("end", reason)] : []),
  ];
}

/** Return the lines of a block, with citations, images and results indented below. */
function blockLines(block: Block, indent = "", label = ""): string[] {
  const shape = BLOCK_FORMATS[block.type];
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

function citationText(citation: BlockCitation): string {
  const title = TITLE_FIELDS.map((key) => textField(citation.fields, key)).find((text) => text !== null);
  return title ? `${citation.cited_text} (${title})` : citation.cited_text;
}

/** Return a labelled text; further lines are indented. */
const formatLine = (label: string, text: string, indent = ""): string =>
  `${indent}${label}:${text ? " " : ""}${text}`.replaceAll("\n", `\n${indent}  `);
