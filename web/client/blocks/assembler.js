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

import { formatCursor, isAhead, parseCursor } from "../transport/cursor.js";
import { isCount, isObject, readCalls, readFields, readFiles, readMessage, readValue, textField } from "./json.js";
import { Agent, Block, BlockCitation, RESULT_TYPES, blockJson, lastValid, transcriptLines } from "./model.js";

export { Agent, Block, BlockCitation };

const CALL_TYPES = new Set(["tool_call", "server_tool_call"]);
const MODEL_TYPES = new Set([...CALL_TYPES, "text", "thinking", "server_tool_result"]); // what a rollback counts
const META_TYPES = new Set(["meta_init", "meta_final", "rollback"]); // no blocks: they take effect when they are complete

const UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });

export class Assembler {
  dropped = 0;
  agents = new Map();
  #blocks = new Set();
  #last = null;

  /** The blocks of all agents as they opened; results are in their call. */
  get blocks() {
    return [...this.#blocks];
  }

  /** The calls that the page must answer. */
  get pending() {
    return [...this.agents.values()].flatMap((agent) => agent.pending());
  }

  /** Accept one message; return the changed blocks, void ones too. A result changes its call. */
  feed(message, id = "") {
    const fields = readFields(typeof message === "string" ? message : UTF8.decode(message));
    if (fields?.type === "reset") return this.#clear(); // has no id of its own: the decoder repeats the last one
    const gone = this.#advance(id);
    return gone === null ? [] : [...gone, ...this.#accept(fields)];
  }

  /** End the stream; return the blocks that stay incomplete. */
  flush() {
    const left = [];
    for (const agent of this.agents.values()) {
      for (const block of agent.open.values()) {
        if (META_TYPES.has(block.type)) this.dropped += 1;
        else left.push(block.call ?? block);
      }
      agent.open.clear();
      agent.openCitation = null;
    }
    return left;
  }

  /** Return everything as JSON, the same as in Python. Values are shared, not copied. */
  asJson() {
    const agents = [...this.agents.values()].map(({ id, meta_init, meta_final }) => ({
      agent: id,
      meta_init,
      meta_final,
    }));
    return { agents, blocks: this.blocks.map(blockJson), pending: this.pending, dropped: this.dropped };
  }

  /** Return everything as text, one agent after the other. */
  transcript() {
    return transcriptLines(this.agents).join("\n");
  }

  #drop() {
    this.dropped += 1;
    return [];
  }

  #clear() {
    const gone = this.blocks;
    for (const block of gone) block.void = true;
    this.agents = new Map();
    this.#blocks = new Set();
    this.#last = null;
    return gone;
  }

  /** Advance to an id. Return null for a repeat, else the blocks that a new epoch makes void. */
  #advance(id) {
    const place = parsePosition(id);
    const last = this.#last;
    if (place === null) return [];
    if (last?.epoch === place.epoch && !isAhead(place, last)) return null;
    const gone = last && last.epoch !== place.epoch ? this.#clear() : [];
    this.#last = place;
    return gone;
  }

  #accept(fields) {
    if (fields === null) return this.#drop();
    if (!VALUE_READERS.has(fields.type)) return [];
    const message = readMessage(fields);
    if (message === null) return this.#drop();
    let agent = this.agents.get(message.agent);
    if (agent === undefined) this.agents.set(message.agent, (agent = new Agent(message.agent)));
    const take = Assembler.#HANDLERS.get(message.type);
    return take ? take(this, agent, message) : this.#onBlock(agent, message);
  }

  #onStreamed(agent, message) {
    const ends = message.final && message.delta === "";
    if (ends && !agent.open.has(openKey(message.type, message.id))) return []; // the end of a text without deltas
    return this.#onBlock(agent, message);
  }

  #onBlock(agent, message) {
    const block = this.#openBlock(agent, message, message.type);
    block.pieces.push(message.delta);
    if (!message.final) return META_TYPES.has(block.type) ? [] : [block.call ?? block];
    agent.open.delete(openKey(block.type, block.id));
    block.complete = true;
    const read = VALUE_READERS.get(block.type);
    if (read) block.value = read(block.text);
    const finish = Assembler.#FINISHERS.get(block.type);
    return finish ? finish(this, agent, block) : [block.call ?? block];
  }

  #onImage(agent, message) {
    const src = textField(message.extra, "src");
    if (src === null) return this.#drop();
    const block = this.#openBlock(agent, message, "tool_result");
    block.images.push({ src, media_type: textField(message.extra, "media_type") ?? "" });
    return [block.call ?? block];
  }

  #onCitation(agent, message) {
    const { index } = message;
    const text = this.#citedText(agent, message);
    let citation = agent.openCitation?.citation;
    if (index === null || agent.openCitation?.index !== index || agent.openCitation.text !== text) {
      citation = new BlockCitation(message.extra);
      text.citations.push(citation);
    }
    citation.pieces.push(message.delta);
    agent.openCitation = message.final ? null : { index, text, citation };
    return [text];
  }

  #citedText(agent, message) {
    const known = lastValid(agent.texts) ?? agent.open.get(openKey("text", message.id));
    if (known) return known;
    const text = new Block("text", agent.id, message.id);
    text.complete = true;
    agent.texts.push(text);
    this.#addBlock(agent, text);
    return text;
  }

  /** Return the open block of a message; the first message opens it. */
  #openBlock(agent, message, type) {
    const key = openKey(type, message.id);
    const known = agent.open.get(key);
    if (known) return known;
    const block = new Block(type, agent.id, message.id, textField(message.extra, "name"));
    agent.open.set(key, block);
    if (!META_TYPES.has(type)) this.#addBlock(agent, block);
    return block;
  }

  /** Add a new block to its call, or to the list of blocks. */
  #addBlock(agent, block) {
    agent.allBlocks.add(block);
    if (MODEL_TYPES.has(block.type)) agent.modelBlocks.push(block);
    if (block.id !== null && CALL_TYPES.has(block.type)) {
      if (!agent.calls.has(block.id)) agent.calls.set(block.id, []);
      agent.calls.get(block.id).push(block);
    }
    if (RESULT_TYPES.has(block.type)) block.call = lastValid(agent.calls.get(block.id) ?? []);
    (block.call?.resultBlocks ?? this.#blocks).add(block);
  }

  #finishText(agent, block) {
    agent.texts.push(block);
    return [block];
  }

  #finishMeta(agent, block) {
    if (!isObject(block.value)) return this.#drop();
    agent[block.type] = block.value;
    return [];
  }

  #finishRollback(agent, { value }) {
    const count = isObject(value) ? value.blocks : null;
    if (!isCount(count)) return this.#drop();
    const changed = new Set();
    for (let left = Math.min(count, agent.modelBlocks.length); left > 0; left -= 1) {
      const block = agent.modelBlocks.pop();
      this.#void(agent, block);
      changed.add(block.call ?? block);
    }
    return [...changed];
  }

  #void(agent, block) {
    block.void = true;
    agent.allBlocks.delete(block);
    (block.call?.resultBlocks ?? this.#blocks).delete(block);
    agent.open.delete(openKey(block.type, block.id));
    lastValid(agent.texts);
    lastValid(agent.calls.get(block.id) ?? []);
    for (const result of block.results) this.#void(agent, result);
  }

  static #streamed = (self, agent, message) => self.#onStreamed(agent, message);
  static #meta = (self, agent, block) => self.#finishMeta(agent, block);

  static #HANDLERS = new Map([
    ["text", Assembler.#streamed],
    ["thinking", Assembler.#streamed],
    ["citation", (self, agent, message) => self.#onCitation(agent, message)],
    ["tool_result_image", (self, agent, message) => self.#onImage(agent, message)],
  ]);

  static #FINISHERS = new Map([
    ["text", (self, agent, block) => self.#finishText(agent, block)],
    ["meta_init", Assembler.#meta],
    ["meta_final", Assembler.#meta],
    ["rollback", (self, agent, block) => self.#finishRollback(agent, block)],
  ]);
}

const openKey = (type, id) => (id === null ? type : `${type} ${id}`);

/** Return the position of an id, or null: ids of other servers may have another form. */
function parsePosition(id) {
  const place = parseCursor(id);
  return place?.epoch && formatCursor(place) === id ? place : null;
}

/** By type: how to read the text of a complete block; null keeps the text. */
const VALUE_READERS = new Map([
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
