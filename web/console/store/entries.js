/**
 * The entries of a chat: messages, texts, thinking, calls, views, hand-offs, notes, events.
 *
 * An entry changes while its part of the log is written. `version` rises with every change of the entry or of anything
 * inside it, so an element compares one number. `seq` is the event that started it, and its key; `place` is the seq
 * where it is shown, which is later for a message that was queued.
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
    this.inside = inside; // the thread around it
    this.touch();
  }

  /** Raise the version of the entry and of everything around it. */
  touch() {
    versions += 1;
    for (let entry = this; entry; entry = entry.inside?.owner) entry.version = versions;
  }
}

/** Entries in order. The owner is the call or agent entry around them; null at the top. */
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

/** A text or a thinking, streaming or complete. */
export class TextEntry extends Entry {
  open = true;
  aborted = false;
  abortReason = null; // "error", "restart", "stop" or "timeout"
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

  /** Complete the text. */
  close(text, { aborted = false, citations = [], speaker = null } = {}) {
    if (text !== undefined) this.#pieces = [text];
    Object.assign(this, { open: false, aborted, citations, speaker });
    this.touch();
  }
}

/** A call of a tool; its thread holds the entries of the agents it started. */
export class CallEntry extends Entry {
  written = ""; // streaming arguments
  args = null;
  executor = "backend";
  isMessageComplete = false; // then the call runs
  awaited = null; // { args, seq } while the page has to answer: the arguments, or an input's questions
  approval = null; // the undecided approval.request
  decision = null;
  input = null; // the values a person gave to an input
  question = null; // the arguments of the last question
  answer = null; // { actor, ts } of the answer
  isErrorShown = false; // inside the card, or by the note of a stop
  progress = ""; // only while it runs
  result = null; // the payload of tool.result
  aborted = false;
  incomplete = null;
  block_id = null;
  waiting = 0; // how many calls inside, at any depth, wait for a person

  constructor(event, inside, call_id, tool) {
    super("call", event, inside);
    this.call_id = call_id;
    this.tool = tool;
    this.thread = new Thread(this);
  }

  /** One of writing, queued, running, waiting, done, error, denied, aborted. */
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

/** An open agent: its thread, and its unfinished texts and calls. */
export class OpenAgent {
  unfinished = new Set(); // texts and calls
  hasAbortedText = false;
  fault = null; // the entry of the error that ended it

  constructor({ agent_name, trace_id, ts }, name, thread) {
    this.name = name ?? agent_name ?? "The agent";
    this.turn = trace_id;
    this.thread = thread;
    this.since = ts; // the time of its last output
  }

  begin(entry) {
    this.unfinished.add(entry);
  }

  finish(entry, ts) {
    if (this.unfinished.delete(entry)) this.since = ts;
  }
}
