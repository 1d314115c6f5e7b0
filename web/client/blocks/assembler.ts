/**
 * The assembler of the dialect `blocks`: messages in, blocks out, in the order in which they opened.
 *
 * `feed` accepts the data and the id of one SSE message and returns the blocks that changed. An open block is
 * identified by (agent, type, id); `final` closes it. A result belongs to its call, a citation to the agent's last
 * complete text, an image to its result. A rollback removes the last blocks of the model, and the results of the calls
 * among them.
 *
 * Nothing is thrown: messages that cannot be used are counted in `dropped`; unknown types and lines that are no JSON
 * object are ignored. A message whose id is not after the last one is a repeat and is ignored. A new epoch or a
 * `reset` makes all blocks void (docs/protocol.md, section 7). Work and memory are linear in the input. The Python
 * client has the same assembler, on the same vectors.
 */

import type { Json } from "../events.js";
import type { Owned } from "../shared/ownership.js";
import { formatCursor, isAhead, parseCursor, type Position } from "../transport/cursor.js";
import type { AssemblerJson, BlockImage, BlockType, JsonObject, PendingFrontendCall } from "./block-json.js";
import {
  type BlockMessage,
  isCount,
  isObject,
  readCalls,
  readFields,
  readFiles,
  readMessage,
  readValue,
  textField,
} from "./json.js";
import { Agent, Block, BlockCitation, blockJson, lastValid, RESULT_TYPES, transcriptLines } from "./model.js";

export type * from "./block-json.js";
export { Agent, Block, BlockCitation };

/** A block of a message that takes effect when it is complete: no reader sees it. */
type MetaType = "meta_init" | "meta_final" | "rollback";

const CALL_TYPES = new Set<string>(["tool_call", "server_tool_call"]);
const MODEL_TYPES = new Set<string>([...CALL_TYPES, "text", "thinking", "server_tool_result"]); // what a rollback counts
const META_TYPES = new Set<string>(["meta_init", "meta_final", "rollback"]); // no blocks: they take effect when they are complete

const UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });

const mutable = <T extends object>(value: T) => value as Owned<T>;

/** Rebuilds the agents and blocks of one session from messages of the dialect `blocks`. */
export class Assembler {
  #dropped = 0;
  #agents = new Map<string, Agent>();
  #blocks = new Set<Block>();
  #last: Position | null = null;

  /** How many messages were not valid. */
  get dropped(): number {
    return this.#dropped;
  }

  get agents(): ReadonlyMap<string, Agent> {
    return this.#agents;
  }

  /** The blocks of all agents as they opened; results are in their call. */
  get blocks(): Block[] {
    return [...this.#blocks];
  }

  /** The calls that the page must answer. */
  get pending(): PendingFrontendCall[] {
    return [...this.#agents.values()].flatMap((agent) => agent.pending());
  }

  /** Accept one message with its SSE id; return the changed blocks, void ones too. A result changes its call. */
  feed(message: string | Uint8Array, id = ""): Block[] {
    const fields = readFields(typeof message === "string" ? message : UTF8.decode(message));
    if (fields?.type === "reset") return this.#clear(); // has no id of its own: the decoder repeats the last one
    const gone = this.#advance(id);
    return gone === null ? [] : [...gone, ...this.#accept(fields)];
  }

  /** End the stream; return the blocks that stay incomplete. */
  flush(): Block[] {
    const left: Block[] = [];
    for (const agent of this.#agents.values()) {
      for (const block of agent.open.values()) {
        if (META_TYPES.has(block.type)) this.#dropped += 1;
        else left.push(block.call ?? block);
      }
      agent.open.clear();
      agent.openCitation = null;
    }
    return left;
  }

  /** Return everything as JSON, the same as in Python. Values are shared, not copied. */
  asJson(): AssemblerJson {
    const agents = [...this.#agents.values()].map(({ id, meta_init, meta_final }) => ({
      agent: id,
      meta_init,
      meta_final,
    }));
    return { agents, blocks: this.blocks.map(blockJson), pending: this.pending, dropped: this.dropped };
  }

  /** Return everything as text, one agent after the other. */
  transcript(): string {
    return transcriptLines(this.#agents).join("\n");
  }

  #drop(): Block[] {
    this.#dropped += 1;
    return [];
  }

  #clear(): Block[] {
    const gone = this.blocks;
    for (const block of gone) mutable(block).void = true;
    this.#agents = new Map();
    this.#blocks = new Set();
    this.#last = null;
    return gone;
  }

  /** Advance to an id. Return null for a repeat, else the blocks that a new epoch makes void. */
  #advance(id: string): Block[] | null {
    const place = parsePosition(id);
    const last = this.#last;
    if (place === null) return [];
    if (last?.epoch === place.epoch && !isAhead(place, last)) return null;
    const gone = last && last.epoch !== place.epoch ? this.#clear() : [];
    this.#last = place;
    return gone;
  }

  #accept(fields: JsonObject | null): Block[] {
    if (fields === null) return this.#drop();
    const { type } = fields;
    if (typeof type !== "string" || !VALUE_READERS.has(type)) return [];
    const message = readMessage(type, fields);
    if (message === null) return this.#drop();
    let agent = this.#agents.get(message.agent);
    if (agent === undefined) {
      agent = new Agent(message.agent);
      this.#agents.set(message.agent, agent);
    }
    const take = Assembler.#HANDLERS.get(message.type);
    return take ? take(this, agent, message) : this.#onBlock(agent, message);
  }

  #onStreamed(agent: Agent, message: BlockMessage): Block[] {
    const ends = message.final && message.delta === "";
    if (ends && !agent.open.has(openKey(message.type, message.id))) return []; // the end of a text without deltas
    return this.#onBlock(agent, message);
  }

  #onBlock(agent: Agent, message: BlockMessage): Block[] {
    const block = this.#openBlock(agent, message, message.type as BlockType | MetaType);
    block.pieces.push(message.delta);
    if (!message.final) return META_TYPES.has(block.type) ? [] : [block.call ?? block];
    agent.open.delete(openKey(block.type, block.id));
    mutable(block).complete = true;
    const read = VALUE_READERS.get(block.type);
    if (read) mutable(block).value = read(block.text);
    const finish = Assembler.#FINISHERS.get(block.type);
    return finish ? finish(this, agent, block) : [block.call ?? block];
  }

  #onImage(agent: Agent, message: BlockMessage): Block[] {
    const src = textField(message.extra, "src");
    if (src === null) return this.#drop();
    const block = this.#openBlock(agent, message, "tool_result");
    (block.images as BlockImage[]).push({ src, media_type: textField(message.extra, "media_type") ?? "" });
    return [block.call ?? block];
  }

  #onCitation(agent: Agent, message: BlockMessage): Block[] {
    const { index } = message;
    const text = this.#citedText(agent, message);
    const open = agent.openCitation;
    const isNext = index !== null && open?.index === index && open.text === text;
    const citation = isNext ? open.citation : new BlockCitation(message.extra);
    if (!isNext) (text.citations as BlockCitation[]).push(citation);
    citation.pieces.push(message.delta);
    agent.openCitation = message.final ? null : { index, text, citation };
    return [text];
  }

  #citedText(agent: Agent, message: BlockMessage): Block {
    const known = lastValid(agent.texts) ?? agent.open.get(openKey("text", message.id));
    if (known) return known;
    const text = new Block("text", agent.id, message.id);
    mutable(text).complete = true;
    agent.texts.push(text);
    this.#addBlock(agent, text);
    return text;
  }

  /** Return the open block of a message; the first message opens it. */
  #openBlock(agent: Agent, message: BlockMessage, type: BlockType | MetaType): Block {
    const key = openKey(type, message.id);
    const known = agent.open.get(key);
    if (known) return known;
    const block = new Block(type as BlockType, agent.id, message.id, textField(message.extra, "name"));
    agent.open.set(key, block);
    if (!META_TYPES.has(type)) this.#addBlock(agent, block);
    return block;
  }

  /** Add a new block to its call, or to the list of blocks. */
  #addBlock(agent: Agent, block: Block): void {
    agent.allBlocks.add(block);
    if (MODEL_TYPES.has(block.type)) agent.modelBlocks.push(block);
    if (block.id !== null && CALL_TYPES.has(block.type)) {
      const calls = agent.calls.get(block.id);
      if (calls) calls.push(block);
      else agent.calls.set(block.id, [block]);
    }
    if (RESULT_TYPES.has(block.type)) mutable(block).call = lastValid(agent.calls.get(block.id ?? "") ?? []);
    (block.call?.resultBlocks ?? this.#blocks).add(block);
  }

  #finishText(agent: Agent, block: Block): Block[] {
    agent.texts.push(block);
    return [block];
  }

  #finishMeta(agent: Agent, block: Block, name: "meta_init" | "meta_final"): Block[] {
    if (!isObject(block.value)) return this.#drop();
    mutable(agent)[name] = block.value;
    return [];
  }

  #finishRollback(agent: Agent, { value }: Block): Block[] {
    const count = isObject(value) ? value.blocks : null;
    if (!isCount(count)) return this.#drop();
    const changed = new Set<Block>();
    for (let left = Math.min(count, agent.modelBlocks.length); left > 0; left -= 1) {
      const block = agent.modelBlocks.pop() as Block;
      this.#void(agent, block);
      changed.add(block.call ?? block);
    }
    return [...changed];
  }

  #void(agent: Agent, block: Block): void {
    mutable(block).void = true;
    agent.allBlocks.delete(block);
    (block.call?.resultBlocks ?? this.#blocks).delete(block);
    agent.open.delete(openKey(block.type, block.id));
    lastValid(agent.texts);
    lastValid(agent.calls.get(block.id ?? "") ?? []);
    for (const result of block.results) this.#void(agent, result);
  }

  static #streamed: Handler = (self, agent, message) => self.#onStreamed(agent, message);

  static #HANDLERS = new Map<string, Handler>([
    ["text", Assembler.#streamed],
    ["thinking", Assembler.#streamed],
    ["citation", (self, agent, message) => self.#onCitation(agent, message)],
    ["tool_result_image", (self, agent, message) => self.#onImage(agent, message)],
  ]);

  static #FINISHERS = new Map<string, Finisher>([
    ["text", (self, agent, block) => self.#finishText(agent, block)],
    ["meta_init", (self, agent, block) => self.#finishMeta(agent, block, "meta_init")],
    ["meta_final", (self, agent, block) => self.#finishMeta(agent, block, "meta_final")],
    ["rollback", (self, agent, block) => self.#finishRollback(agent, block)],
  ]);
}

type Handler = (self: Assembler, agent: Agent, message: BlockMessage) => Block[];
type Finisher = (self: Assembler, agent: Agent, block: Block) => Block[];

const openKey = (type: string, id: string | null): string => (id === null ? type : `${type} ${id}`);

/** Return the position of an id, or null: ids of other servers may have another form. */
function parsePosition(id: string): Position | null {
  const place = parseCursor(id);
  return place?.epoch && formatCursor(place) === id ? place : null;
}

/** By type: how to read the text of a complete block; null keeps the text. */
const VALUE_READERS = new Map<string, ((text: string) => Json | undefined) | null>([
  ["text", null],
  ["thinking", null],
  ["citation", null],
  ["tool_call", readValue],
  ["server_tool_call", readValue],
  ["tool_result", null],
  ["tool_result_image", null],
  ["server_tool_result", null],
  ["awaiting_frontend_tools", readCalls],
  ["meta_files", readFiles],
  ["error", readValue],
  ["meta_init", readValue],
  ["meta_final", readValue],
  ["rollback", readValue],
]);
