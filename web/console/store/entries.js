/**
 * What a chat shows, one entry each: messages, texts, thinking, calls, views, hand-offs, notes, events.
 *
 * An entry is a value that changes while its part of the log is written. `version` rises with every change of
 * the entry or of anything inside it, so whoever draws compares one number. `seq` is the event that began it, and
 * its key; `place` is the seq that it stands at, which is later for a message that was queued.
 */

let versions = 0;

export class Entry {
  version = 0;

  constructor(kind, event, inside) {
    this.kind = kind;
    this.seq = event.seq;
    this.place = event.seq;
    this.event_id = event.id;
    this.ts = event.ts;
    this.agent_id = event.agent_id ?? null;
    this.agent_name = event.agent_name ?? null;
    this.channel = event.channel ?? null;
    this.turn = event.trace_id ?? null;
    this.inside = inside; // the thread that holds it
    this.touch();
  }

  /** It has changed, and so has everything around it. */
  touch() {
    versions += 1;
    for (let entry = this; entry; entry = entry.inside?.owner) entry.version = versions;
  }
}

/** Entries in order; the owner is the call or the agent that they are nested in, none at the top. */
export class Thread {
  entries = [];

  constructor(owner = null) {
    this.owner = owner;
  }

  add(entry) {
    this.entries.push(entry);
    return entry;
  }

  remove(entry) {
    const at = this.entries.lastIndexOf(entry);
    if (at < 0) return;
    this.entries.splice(at, 1);
    this.owner?.touch();
  }
}

/** A text or a thinking, while it is written and afterwards. */
export class TextEntry extends Entry {
  open = true;
  aborted = false;
  abortReason = null; // why it was aborted: "error", "restart", "stop" or "timeout"
  citations = [];
  speaker = null;
  #pieces = [];

  get text() {
    if (this.#pieces.length > 1) this.#pieces = [this.#pieces.join("")];
    return this.#pieces[0] ?? "";
  }

  add(piece) {
    this.#pieces.push(piece);
    this.touch();
  }

  /** It is over, with this text. */
  close(text, { aborted = false, citations = [], speaker = null } = {}) {
    if (text !== undefined) this.#pieces = [text];
    Object.assign(this, { open: false, aborted, citations, speaker });
    this.touch();
  }
}

/** A call of a tool, with the agents that it started in its thread. */
export class CallEntry extends Entry {
  written = ""; // arguments as they come
  args = null;
  executor = "backend";
  isMessageComplete = false; // the message it stands in is complete: it has begun
  awaited = null; // what the page is asked: the arguments, or an input's questions
  approval = null; // the request that nobody has decided
  decision = null;
  input = null; // what a person gave to a call that asked
  question = null; // the arguments that the page was asked with, last
  answer = null; // who answered, and when: { actor, ts }
  isErrorShown = false; // its error stands inside it, or the note of a stop tells it
  progress = ""; // only while it runs
  result = null; // the payload of tool.result
  aborted = false;
  incomplete = null;
  block_id = null;
  waiting = 0; // calls inside, at any depth, that wait for a person

  constructor(event, inside, call_id, tool) {
    super("call", event, inside);
    this.call_id = call_id;
    this.tool = tool;
    this.thread = new Thread(this);
  }

  /** writing, queued, running, waiting, done, error, denied or aborted. */
  get state() {
    if (this.result !== null) return this.result.ok ? "done" : (ERROR_STATES.get(this.result.error?.code) ?? "error");
    if (this.aborted) return "aborted";
    if (this.approval !== null || this.awaited !== null) return "waiting";
    if (this.args === null) return "writing";
    return this.isMessageComplete ? "running" : "queued";
  }
}

const ERROR_STATES = new Map([
  ["CANCELLED", "aborted"],
  ["DENIED", "denied"],
]);

/** An agent that is open: the thread that it writes to, and what it has begun and not finished. */
export class OpenAgent {
  unfinished = new Set(); // texts and calls
  hasAbortedText = false; // a text of it broke off
  fault = null; // the entry of the error that ends it

  constructor({ agent_name, trace_id, ts }, name, thread) {
    this.name = name ?? agent_name ?? "The agent";
    this.turn = trace_id;
    this.thread = thread;
    this.since = ts; // since when it has written nothing
  }

  begin(entry) {
    this.unfinished.add(entry);
  }

  finish(entry, ts) {
    if (this.unfinished.delete(entry)) this.since = ts;
  }
}
