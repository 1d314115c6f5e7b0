/**
 * The reader of the dialect `blocks`: messages in, whole blocks out, in the order in which they opened.
 *
 * `feed` takes the data of one SSE message with its id and gives the blocks that changed; `flush` says that no
 * more will come. While a block is open it is known by (agent, type, id); `final` closes it. Results hang on
 * their call, citations on the agent's last complete text, images on their result. A rollback takes back what
 * the model said last, and with a call its results. Nothing is thrown: what cannot be used is counted in
 * `dropped`, unknown types and lines that are no JSON object are not even counted.
 *
 * After a reconnect messages may come again: one whose id is not after the last one is left out. A new epoch or
 * a `reset` makes everything void (docs/protocol.md, section 7). Work and memory are linear in the input.
 * `turnlog.wire.assemble` is the same reader in Python. JSON is read so that both hold the same value; where
 * they could not (numbers beyond 2**53 - 1, lone surrogates, more than 128 levels) it stays text.
 */

const DEPTH = 128; // the gate stops at 32, histories wrap what passed it; far below any stack

const COMMON = new Set(["type", "agent", "final", "delta", "index"]);
const CALLS = new Set(["tool_call", "server_tool_call"]);
const RESULTS = new Set(["tool_result", "server_tool_result"]);
const MODEL = new Set([...CALLS, "text", "thinking", "server_tool_result"]); // what a rollback counts
const UNLISTED = new Set(["meta_init", "meta_final", "rollback"]); // no blocks: they act when they are complete
const TITLES = ["document_title", "title", "url"];

const OBJECT = /^[ \t\r\n]*\{/;
const LONE = /\p{Surrogate}/u; // with the flag u, a pair is one character and not a surrogate
const EVERY_LONE = /\p{Surrogate}/gu;
const ID = /^([a-z0-9]{1,32}):(-1(?!\.)|0|[1-9][0-9]{0,17})(?:\.(0|[1-9][0-9]{0,8}))?$/;
const UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });

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

  /** The calls that the agent last waited for and that have no result since. */
  pending() {
    const answered = new Set();
    for (const block of this.order.reverse()) {
      if (RESULTS.has(block.type)) {
        answered.add(block.id);
      } else if (block.type === "awaiting_frontend_tools" && Array.isArray(block.value)) {
        const calls = block.value.filter((call) => !answered.has(call.tool_use_id));
        return calls.map((call) => ({ ...call, agent: this.id }));
      }
    }
    return [];
  }
}

/** Rebuilds what the agents of one session said. */
export class Assembler {
  dropped = 0;
  agents = new Map();
  #blocks = new Set();
  #last = null;

  /** The blocks of all agents as they opened; results with a call are found there. */
  get blocks() {
    return [...this.#blocks];
  }

  /** The calls that the page must answer. */
  get pending() {
    return [...this.agents.values()].flatMap((agent) => agent.pending());
  }

  /** Take one message; return the blocks that changed, void ones too. A result changes its call. */
  feed(message, id = "") {
    const fields = readFields(typeof message === "string" ? message : UTF8.decode(message));
    if (fields?.type === "reset") return this.#clear(); // has no id of its own: the reader's last one sticks
    const gone = this.#move(id);
    return gone === null ? [] : [...gone, ...this.#take(fields)];
  }

  /** The stream is over: what is open stays incomplete. Returns these blocks. */
  flush() {
    const left = [];
    for (const agent of this.agents.values()) {
      for (const block of agent.open.values()) {
        if (UNLISTED.has(block.type)) this.dropped += 1;
        else left.push(block.call ?? block);
      }
      agent.open.clear();
      agent.cited = null;
    }
    return left;
  }

  /** Everything as plain JSON, the same in Python and JavaScript. Values are shared, not copied. */
  asJson() {
    const agents = [...this.agents.values()].map(({ id, meta_init, meta_final }) => ({
      agent: id, meta_init, meta_final,
    }));
    return { agents, blocks: this.blocks.map(blockJson), pending: this.pending, dropped: this.dropped };
  }

  /** Everything as text for people, one agent after the other. */
  transcript() {
    return [...this.agents.values()].flatMap(agentLines).join("\n");
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

  /** Go on to the place of an id: null when it was seen before, else what a new epoch makes void. */
  #move(id) {
    const place = placeOf(id);
    const last = this.#last;
    if (place === null) return [];
    if (last?.epoch === place.epoch && !isAfter(place, last)) return null;
    const gone = last && last.epoch !== place.epoch ? this.#clear() : [];
    this.#last = place;
    return gone;
  }

  #take(fields) {
    if (fields === null) return this.#drop();
    if (!KINDS.has(fields.type)) return [];
    const message = readMessage(fields);
    if (message === null) return this.#drop();
    let agent = this.agents.get(message.agent);
    if (agent === undefined) this.agents.set(message.agent, (agent = new Agent(message.agent)));
    const take = Assembler.#TAKE.get(message.type);
    return take ? take(this, agent, message) : this.#takeBlock(agent, message);
  }

  #takeStreamed(agent, message) {
    const ends = message.final && message.delta === "";
    if (ends && !agent.open.has(keyOf(message.type, message.id))) return []; // of a text that never began
    return this.#takeBlock(agent, message);
  }

  #takeBlock(agent, message) {
    const block = this.#opened(agent, message, message.type);
    block.pieces.push(message.delta);
    if (!message.final) return UNLISTED.has(block.type) ? [] : [block.call ?? block];
    agent.open.delete(keyOf(block.type, block.id));
    block.complete = true;
    const { read } = KINDS.get(block.type);
    if (read) block.value = read(block.text);
    const finish = Assembler.#FINISH.get(block.type);
    return finish ? finish(this, agent, block) : [block.call ?? block];
  }

  #takeImage(agent, message) {
    const src = textIn(message.extra, "src");
    if (src === null) return this.#drop();
    const block = this.#opened(agent, message, "tool_result");
    block.images.push({ src, media_type: textIn(message.extra, "media_type") ?? "" });
    return [block.call ?? block];
  }

  #takeCitation(agent, message) {
    const { index } = message;
    const text = this.#citedText(agent, message);
    let citation = agent.cited?.citation;
    if (index === null || agent.cited?.index !== index || agent.cited.text !== text) {
      citation = new Citation(message.extra);
      text.citations.push(citation);
    }
    citation.pieces.push(message.delta);
    agent.cited = message.final ? null : { index, text, citation };
    return [text];
  }

  #citedText(agent, message) {
    const known = lastOf(agent.texts) ?? agent.open.get(keyOf("text", message.id));
    if (known) return known;
    const text = new Block("text", agent.id, message.id);
    text.complete = true;
    agent.texts.push(text);
    this.#place(agent, text);
    return text;
  }

  /** The open block that a message belongs to; the first message opens it. */
  #opened(agent, message, type) {
    const key = keyOf(type, message.id);
    const known = agent.open.get(key);
    if (known) return known;
    const block = new Block(type, agent.id, message.id, textIn(message.extra, "name"));
    agent.open.set(key, block);
    if (!UNLISTED.has(type)) this.#place(agent, block);
    return block;
  }

  /** Put a new block where it is found: with its call, or among the others. */
  #place(agent, block) {
    agent.placed.add(block);
    if (MODEL.has(block.type)) agent.spoken.push(block);
    if (block.id !== null && CALLS.has(block.type)) {
      if (!agent.calls.has(block.id)) agent.calls.set(block.id, []);
      agent.calls.get(block.id).push(block);
    }
    if (RESULTS.has(block.type)) block.call = lastOf(agent.calls.get(block.id) ?? []);
    (block.call?.held ?? this.#blocks).add(block);
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
    for (let left = Math.min(count, agent.spoken.length); left > 0; left -= 1) {
      const block = agent.spoken.pop();
      this.#void(agent, block);
      changed.add(block.call ?? block);
    }
    return [...changed];
  }

  #void(agent, block) {
    block.void = true;
    agent.placed.delete(block);
    (block.call?.held ?? this.#blocks).delete(block);
    agent.open.delete(keyOf(block.type, block.id));
    lastOf(agent.texts);
    lastOf(agent.calls.get(block.id) ?? []);
    for (const result of block.results) this.#void(agent, result);
  }

  static #streamed = (self, agent, message) => self.#takeStreamed(agent, message);
  static #meta = (self, agent, block) => self.#finishMeta(agent, block);

  static #TAKE = new Map([
    ["text", Assembler.#streamed],
    ["thinking", Assembler.#streamed],
    ["citation", (self, agent, message) => self.#takeCitation(agent, message)],
    ["tool_result_image", (self, agent, message) => self.#takeImage(agent, message)],
  ]);

  static #FINISH = new Map([
    ["text", (self, agent, block) => self.#finishText(agent, block)],
    ["meta_init", Assembler.#meta],
    ["meta_final", Assembler.#meta],
    ["rollback", (self, agent, block) => self.#finishRollback(agent, block)],
  ]);
}

/** The name of an open block within its agent. */
const keyOf = (type, id) => (id === null ? type : `${type} ${id}`);

/** Pieces as one text; they stay joined. The two halves of a character may have come in two pieces. */
function joined(pieces) {
  const text = pieces.join("");
  pieces.splice(0, pieces.length, text);
  return clean(text);
}

/** The last block that is not void; void ones are let go. */
function lastOf(blocks) {
  while (blocks.at(-1)?.void) blocks.pop();
  return blocks.at(-1) ?? null;
}

/** The place an id names; its plain form is the last frame of an event. Foreign ids name none. */
function placeOf(id) {
  const match = ID.exec(id);
  if (match === null) return null;
  const [, epoch, seq, chunk] = match;
  return { epoch, seq: BigInt(seq), chunk: chunk === undefined ? Infinity : Number(chunk) };
}

const isAfter = (place, last) => (place.seq === last.seq ? place.chunk > last.chunk : place.seq > last.seq);

/** The fields of a message: none for a line that is no object, null for an object that is broken. */
function readFields(text) {
  return OBJECT.test(text) ? readJson(text) ?? null : {};
}

/** A message; null when a common field is missing or of another type. */
function readMessage(fields) {
  const { type, agent, final, delta, index } = fields;
  if (typeof agent !== "string" || typeof delta !== "string" || typeof final !== "boolean") return null;
  const others = Object.entries(fields).filter(([key, value]) => !COMMON.has(key) && isScalar(value));
  const extra = Object.fromEntries(
    others.map(([key, value]) => [clean(key), typeof value === "string" ? clean(value) : value]),
  );
  const place = isCount(index) ? index : null;
  return { type, agent: clean(agent), final, delta, index: place, id: textIn(extra, "id"), extra };
}

/** A field that is a text, and not empty. */
function textIn(fields, key) {
  const value = isObject(fields) ? fields[key] : null;
  return typeof value === "string" && value !== "" ? value : null;
}

const isSafe = (value) => Math.abs(value) <= Number.MAX_SAFE_INTEGER;
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Whether a value may stand beside a delta. */
const isScalar = (value) =>
  typeof value === "number" ? isSafe(value) : typeof value === "string" || typeof value === "boolean";

/** Text without lone surrogates, which UTF-8 cannot say. */
const clean = (text) => (LONE.test(text) ? text.replace(EVERY_LONE, "\ufffd") : text);

/** What a JSON text says; undefined when it is no JSON, or not the same in every language. */
function readValue(text) {
  const value = readJson(text);
  return isSame(value) ? value : undefined;
}

function readJson(text) {
  try {
    const value = JSON.parse(text);
    return isShallow(value, DEPTH) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isShallow(value, levels) {
  if (typeof value !== "object" || value === null) return true;
  return levels > 0 && Object.values(value).every((item) => isShallow(item, levels - 1));
}

/** Whether every language reads this value alike. */
function isSame(value) {
  if (typeof value === "number") return isSafe(value);
  if (typeof value === "string") return !LONE.test(value);
  if (typeof value !== "object" || value === null) return true;
  if (Array.isArray(value)) return value.every(isSame);
  return Object.entries(value).every(([key, item]) => !LONE.test(key) && isSame(item));
}

function readFiles(text) {
  const value = readValue(text);
  return isObject(value) && Array.isArray(value.files) ? value.files : undefined;
}

function readCalls(text) {
  const value = readValue(text);
  return Array.isArray(value) && value.every(isCall) ? value : undefined;
}

const isCall = (value) => isObject(value) && typeof value.tool_use_id === "string";

/** A block as plain JSON; what could not be read as JSON is `raw`. */
function blockJson(block) {
  const kind = KINDS.get(block.type);
  const parts = Object.fromEntries(kind.parts.map((part) => [part, PARTS.get(part)(block)]));
  if (kind.value !== "") {
    if (block.value === undefined) parts.raw = block.text;
    else parts[kind.value] = block.value;
  }
  return { type: block.type, agent: block.agent, ...parts, complete: block.complete };
}

/** One agent: who called it, what it was asked, what it said, how it ended. */
function agentLines(agent) {
  const keys = ["model", "parent_agent_uuid", "user_query"];
  const [model, parent, query] = keys.map((key) => textIn(agent.meta_init, key));
  const reason = textIn(agent.meta_final, "stop_reason");
  return [
    `[${agent.id}]${model ? ` ${model}` : ""}${parent ? ` called by ${parent}` : ""}`,
    ...(query ? [lineOf("user", query)] : []),
    ...agent.order.filter((block) => !block.call).flatMap((block) => blockLines(block)),
    ...(reason ? [lineOf("end", reason)] : []),
  ];
}

/** A block, and below it what hangs on it. */
function blockLines(block, indent = "") {
  const kind = KINDS.get(block.type);
  const deeper = `${indent}  `;
  const items = kind.named !== "" && Array.isArray(block.value) ? block.value : [];
  const text = items.map((item) => textIn(item, kind.named) ?? "?").join(", ") || block.text;
  const name = block.name && !block.call ? ` ${block.name}` : "";
  return [
    lineOf(kind.label + name + (block.complete ? "" : " (incomplete)"), text, indent),
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

const CALL = ["id", "name", "results"];
const RESULT = ["id", "name", "text", "images"];

/** How a type is read, written and shown: `value` names its value in JSON, `named` the names in a list. */
const kindOf = (label, parts, value = "", read = null, named = "") => ({ label, parts, value, read, named });

const KINDS = new Map([
  ["text", kindOf("text", ["text", "citations"])],
  ["thinking", kindOf("thinking", ["text"])],
  ["citation", kindOf("", [])],
  ["tool_call", kindOf("call", CALL, "args", readValue)],
  ["server_tool_call", kindOf("provider call", CALL, "args", readValue)],
  ["tool_result", kindOf("result", RESULT)],
  ["tool_result_image", kindOf("", [])],
  ["server_tool_result", kindOf("provider result", RESULT)],
  ["awaiting_frontend_tools", kindOf("waiting for", [], "calls", readCalls, "name")],
  ["meta_files", kindOf("files", [], "files", readFiles, "filename")],
  ["error", kindOf("error", [], "error", readValue)],
  ["meta_init", kindOf("", [], "", readValue)],
  ["meta_final", kindOf("", [], "", readValue)],
  ["rollback", kindOf("", [], "", readValue)],
]);
