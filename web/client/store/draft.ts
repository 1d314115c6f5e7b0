/**
 * One batch of changes to a `FoldState`: finds, adds, changes and removes messages and parts.
 *
 * Reducers change objects that the batch owns (`shared/ownership.ts`). `finish` derives what follows from the open work,
 * and returns the next state.
 */

import { type AnyEvent, visibleChannel } from "../folds/event-text.js";
import { reduceMeters } from "../folds/meters.js";
import { listAgents, listCalls, type OpenAgent } from "../folds/pending.js";
import { childLookup, waitingAgents } from "../folds/tree.js";
import { Batch, type Owned, ownEntry, ownField } from "../shared/ownership.js";
import { shareFields, shareItems, shareRows } from "../shared/structural-sharing.js";
import { type AgentPlace, type FoldState, LazyState, type Path } from "./fold-state.js";
import type {
  AgentMessage,
  AgentPart,
  CallPart,
  EventMessage,
  Message,
  Part,
  Snapshot,
  TextPart,
  UserMessage,
} from "./types.js";

/** What has parts: a message, or the part of an agent. */
type Holder = Message | AgentPart;

const WAITS_FOR_PERSON = new Set(["page", "approval"] as const);

const copyUserMessage = (message: UserMessage): UserMessage => ({ ...message });
// What changes with most events is copied by a literal of all fields: that is several times as fast as a spread.
const copyAgentMessage = (message: AgentMessage): AgentMessage => ({
  id: message.id,
  seq: message.seq,
  ts: message.ts,
  turn: message.turn,
  channel: message.channel,
  role: message.role,
  agent_id: message.agent_id,
  agent_name: message.agent_name,
  model: message.model,
  depth: message.depth,
  state: message.state,
  ending: message.ending,
  parts: message.parts,
});
const copyText = (part: TextPart): TextPart => ({
  id: part.id,
  seq: part.seq,
  ts: part.ts,
  type: part.type,
  text: part.text,
  state: part.state,
  aborted: part.aborted,
  citations: part.citations,
  speaker: part.speaker,
  redacted: part.redacted,
});
const copySnapshot = (snapshot: Snapshot): Snapshot => ({
  session: snapshot.session,
  messages: snapshot.messages,
  queue: snapshot.queue,
  pending: snapshot.pending,
  agents: snapshot.agents,
  status: snapshot.status,
  connection: snapshot.connection,
  hasHistory: snapshot.hasHistory,
  error: snapshot.error,
  usage: snapshot.usage,
  title: snapshot.title,
  ending: snapshot.ending,
  members: snapshot.members,
  last: snapshot.last,
});
const copyCall = (part: CallPart): CallPart => ({
  id: part.id,
  seq: part.seq,
  ts: part.ts,
  type: part.type,
  call_id: part.call_id,
  tool: part.tool,
  state: part.state,
  args: part.args,
  written: part.written,
  incomplete: part.incomplete,
  executor: part.executor,
  progress: part.progress,
  result: part.result,
  error: part.error,
  images: part.images,
});
const copyAgent = (part: AgentPart): AgentPart => ({
  id: part.id,
  seq: part.seq,
  ts: part.ts,
  agent_id: part.agent_id,
  agent_name: part.agent_name,
  model: part.model,
  depth: part.depth,
  state: part.state,
  ending: part.ending,
  type: part.type,
  call_id: part.call_id,
  parts: part.parts,
});
const copyPlace = (place: AgentPlace): AgentPlace => ({ ...place });

function copyMessage(message: Message): Message {
  if (message.role === "assistant") return copyAgentMessage(message);
  return message.role === "user" ? copyUserMessage(message) : { ...message };
}

function copyPart(part: Part): Part {
  if (part.type === "text" || part.type === "thinking") return copyText(part);
  if (part.type === "call") return copyCall(part);
  return part.type === "agent" ? copyAgent(part) : { ...part };
}

export class Draft {
  readonly batch = new Batch();
  readonly state: LazyState;
  readonly snapshot: Owned<Snapshot>;
  /** The holder that this batch owned last: the next part is most often in the same one. */
  #lastPath: Path | null = null;
  #lastHolder: Owned<Holder> | undefined = undefined;
  /** The block of the last delta: the next one is most often of the same block. */
  #streamedAgent: string | undefined = undefined;
  #streamedPart: Owned<Part> | undefined = undefined;
  /** The turn of the last event that counted: it has its meter. */
  #turn: string | undefined | null = null;
  /** Whether agents or calls may have begun, ended or changed. */
  hasWorkChanged = false;

  constructor(state: FoldState) {
    this.snapshot = copySnapshot(state.snapshot);
    this.state = new LazyState(state, this.snapshot);
  }

  /** Own a field of the state, and return it. */
  own<Name extends Exclude<keyof FoldState, "tree" | "snapshot">>(name: Name): Owned<FoldState[Name] & object> {
    return ownField<FoldState, Name>(this.batch, this.state, name) as Owned<FoldState[Name] & object>;
  }

  addMessage<T extends Message>(message: T): T {
    this.own("messages").push(this.#adopt(message));
    return message;
  }

  #adopt<T extends Message | Part>(item: T): T {
    if ("parts" in item) this.batch.adopt(item.parts as Part[]);
    return this.batch.adopt(item);
  }

  removeMessage(id: string): void {
    this.#forgetLast();
    for (const name of ["messages", "queue"] as const) {
      const at = this.state[name].findLastIndex((message) => message.id === id);
      if (at >= 0) this.own(name).splice(at, 1);
    }
  }

  /** Own the message or the agent part at a path, and return it; undefined if it was removed. */
  ownHolder(path: Path): Owned<Holder> | undefined {
    if (this.#lastPath === path) return this.#lastHolder;
    const holder = this.#findHolder(path);
    this.#lastPath = holder ? path : null;
    this.#lastHolder = holder;
    return holder;
  }

  #findHolder(path: Path): Owned<Holder> | undefined {
    const { messages } = this.state;
    const at = lastIndexOfId(messages, path[0] as string);
    const message = messages[at];
    if (message === undefined) return undefined;
    let holder: Owned<Holder> = this.batch.own<Message>(message, copyMessage);
    this.own("messages")[at] = holder as Message;
    for (let step = 1; step < path.length; step += 1) {
      const part = this.#ownPart(holder, path[step] as string);
      if (part?.type !== "agent") return undefined;
      holder = part;
    }
    return holder;
  }

  #ownPart(holder: Owned<Holder>, id: string): Owned<Part> | undefined {
    const at = lastIndexOfId(holder.parts, id);
    const before = holder.parts[at];
    if (before === undefined) return undefined;
    const part = this.batch.own<Part>(before, copyPart);
    ownField(this.batch, holder, "parts")[at] = part as Part;
    return part;
  }

  /** Own a part, and return it; undefined if it was removed. */
  ownPart(path: Path, id: string): Owned<Part> | undefined {
    const holder = this.ownHolder(path);
    return holder && this.#ownPart(holder, id);
  }

  #forgetLast(): void {
    this.#lastPath = null;
    this.#streamedPart = undefined;
  }

  /** Own the part of an agent's block, and return it; undefined if there is none. */
  ownBlock(agentId: string | undefined, blockId: string): Owned<Part> | undefined {
    if (this.#streamedPart?.id === blockId && this.#streamedAgent === agentId) return this.#streamedPart;
    const path = this.findPath(agentId, blockId);
    this.#streamedAgent = agentId;
    this.#streamedPart = path && this.ownPart(path, blockId);
    return this.#streamedPart;
  }

  /** Return the path of the holder of an agent's part; undefined if there is none. */
  findPath(agentId: string | undefined, partId: string): Path | undefined {
    const paths = this.state.agents.get(agentId ?? "")?.paths ?? [];
    return paths.findLast((path) => lastIndexOfId(this.partsAt(path), partId) >= 0);
  }

  /** Return the parts at a path, to read. */
  partsAt(path: Path): readonly Part[] {
    return this.#holderAt(path)?.parts ?? [];
  }

  #holderAt(path: Path): Holder | undefined {
    if (this.#lastPath === path) return this.#lastHolder;
    let holder: Holder | undefined = findById(this.state.messages, path[0] as string);
    for (let step = 1; step < path.length; step += 1) {
      const part: Part | undefined = holder && findById(holder.parts, path[step] as string);
      holder = part?.type === "agent" ? part : undefined;
    }
    return holder;
  }

  /** Add a part of an event; with a call behind the last part of that call, else at the end. */
  addPart<T extends Part>(path: Path, part: T, callId: string | null = null): T {
    const holder = this.ownHolder(path);
    if (holder === undefined) return part;
    if (this.#streamedPart?.id === part.id) this.#streamedPart = undefined; // the new one is found first
    const parts = ownField(this.batch, holder, "parts");
    const before = callId === null ? -1 : parts.findLastIndex((each) => "call_id" in each && each.call_id === callId);
    if (before < 0) parts.push(this.#adopt(part));
    else parts.splice(before + 1, 0, this.#adopt(part));
    return part;
  }

  /** Remove the parts that match. */
  removeParts(path: Path, matches: (part: Part) => boolean): void {
    const holder = this.partsAt(path).some(matches) ? this.ownHolder(path) : undefined;
    if (holder === undefined) return;
    this.#forgetLast(); // a removed part may hold others
    holder.parts = this.batch.adopt(holder.parts.filter((part) => !matches(part)));
  }

  /** Own the place of an agent, and return it. An agent whose start is not in the log gets one. */
  ownPlace(event: AnyEvent): Owned<AgentPlace> {
    const agentId = event.agent_id ?? "";
    const agents = this.own("agents");
    if (!agents.has(agentId)) this.openPlace(agentId, [this.addAgentMessage(event).id]);
    return ownEntry(this.batch, agents, agentId, copyPlace) as Owned<AgentPlace>;
  }

  openPlace(agentId: string, path: Path): void {
    const { batch } = this;
    const place = { paths: [path], calls: batch.adopt(new Map()), queuedCalls: batch.adopt(new Map()) };
    this.own("agents").set(agentId, batch.adopt(place));
  }

  /** Return where the next part of an event's agent belongs. */
  currentPath(event: AnyEvent): Path {
    const { paths } = this.state.agents.get(event.agent_id ?? "") ?? this.ownPlace(event);
    const path = paths.at(-1) as Path;
    if (path.length > 1 || this.#isCurrent(path, event)) return path;
    const message = this.addAgentMessage(event);
    this.#continueIn(path, message);
    ownField(this.batch, this.ownPlace(event), "paths").push([message.id]);
    return [message.id];
  }

  /** Let an agent continue in another message: it works in that one now. */
  #continueIn(path: Path, message: AgentMessage): void {
    const before = this.ownHolder(path);
    if (before === undefined || !("agent_id" in before)) return;
    const { agent_name, model, state } = before;
    Object.assign(message, { agent_name, model, state });
    before.state = "done";
  }

  /** Whether an agent continues its message: no person wrote after it, in the same turn and channel. */
  #isCurrent([id]: Path, event: AnyEvent): boolean {
    const { messages } = this.state;
    for (let at = messages.length - 1; at >= 0; at -= 1) {
      const message = messages[at] as Message;
      if (message.id === id) return this.#takes(message, event);
      if (message.role === "user") return false;
    }
    return false;
  }

  #takes({ id, turn, channel, parts }: Message, event: AnyEvent): boolean {
    const isSame = turn === (event.trace_id ?? null) && channel === visibleChannel(event);
    if (isSame || parts.length > 0) return isSame;
    Object.assign(this.ownHolder([id]) as Owned<Message>, messageFields(event), { id });
    return true;
  }

  addAgentMessage(event: AnyEvent): AgentMessage {
    // Not by `messageFields`: a literal without a spread is three times as fast, and this one is made most often.
    return this.addMessage({
      id: event.id,
      seq: event.seq,
      ts: event.ts,
      turn: event.trace_id ?? null,
      channel: visibleChannel(event),
      role: "assistant",
      agent_id: event.agent_id ?? null,
      agent_name: event.agent_name ?? null,
      model: null,
      depth: event.depth ?? 0,
      state: "done",
      ending: null,
      parts: [],
    });
  }

  /** Add the part of an event: to its agent, or else as a message of its own. */
  addEventPart(event: AnyEvent, part: Part): void {
    if (this.state.agents.has(event.agent_id ?? "")) this.addPart(this.currentPath(event), part);
    else this.addMessage<EventMessage>({ ...messageFields(event), role: "event", parts: [part] });
  }

  /** Apply an event to the meters; one that does not count may be the first of its turn. */
  applyMeters(event: AnyEvent, isCounted: boolean): void {
    const { trace_id } = event;
    if (!isCounted) {
      if (trace_id === this.#turn) return;
      const { session, turns } = this.state.meters;
      if (session !== null && (trace_id === undefined || turns.has(trace_id))) return;
    }
    reduceMeters(this.own("meters"), event, this.batch);
    this.#turn = trace_id;
  }

  /** Return the next state. */
  finish(): FoldState {
    const { state, snapshot } = this;
    if (this.hasWorkChanged) this.#deriveWork();
    this.#showMessages();
    if (snapshot.usage !== state.meters) snapshot.usage = shareFields(snapshot.usage, state.meters);
    return state;
  }

  /** Derive from the tree who waits and what waits for a person. */
  #deriveWork(): void {
    const { tree, agents } = this.state;
    const findChild = childLookup(tree);
    const waiters = waitingAgents(tree, findChild);
    for (const [agentId, { paths }] of agents) {
      if (tree.open.has(agentId))
        this.#setAgentState(paths.at(-1) as Path, waiters.has(agentId) ? "waiting" : "running");
    }
    this.snapshot.pending = shareRows(this.snapshot.pending, listCalls(tree, findChild, WAITS_FOR_PERSON));
    this.snapshot.agents = shareAgents(this.snapshot.agents, listAgents(tree, waiters));
    const isBusy = tree.queuedTurns.size > 0 || tree.handoffTargets.size > 0 || waiters.size < tree.open.size;
    const idle = tree.open.size > 0 ? "waiting" : "idle";
    const status = isBusy ? "running" : idle;
    this.snapshot.status = this.snapshot.ending ? "closed" : status;
  }

  #setAgentState(path: Path, state: AgentMessage["state"]): void {
    const before = this.#holderAt(path);
    if (before === undefined || !("agent_id" in before) || before.state === state) return;
    (this.ownHolder(path) as Owned<AgentMessage>).state = state;
  }

  /** Show the messages that are not in the log yet behind the others, where their events will be. */
  #showMessages(): void {
    const { messages, queue, unsent, unstarted } = this.state;
    if (unsent.length === 0) {
      this.snapshot.messages = messages;
      this.snapshot.queue = queue;
      return;
    }
    const isBusy = this.state.tree.open.size > 0 || unstarted.size > 0;
    const shown: readonly Message[] = isBusy ? messages : [...messages, ...unsent];
    const waiting: readonly UserMessage[] = isBusy ? [...queue, ...unsent] : queue;
    this.snapshot.messages = shareItems(this.snapshot.messages, shown);
    this.snapshot.queue = shareItems(this.snapshot.queue, waiting);
  }
}

/** `shareRows` for agents, whose lists of called agents are shared too. */
function shareAgents(before: readonly OpenAgent[], after: OpenAgent[]): readonly OpenAgent[] {
  after.forEach((agent, at) => {
    agent.agents = shareAgents(before[at]?.agents ?? [], agent.agents) as OpenAgent[];
  });
  return shareRows(before, after);
}

/** Return the index of the last item with an id, or -1. What changes is near the end. */
function lastIndexOfId(items: ReadonlyArray<{ readonly id: string }>, id: string): number {
  for (let at = items.length - 1; at >= 0; at -= 1) if (items[at]?.id === id) return at;
  return -1;
}

/** Return the last item with an id. */
export const findById = <T extends { readonly id: string }>(items: readonly T[], id: string): T | undefined =>
  items[lastIndexOfId(items, id)];

export const partFields = ({ id, seq, ts }: AnyEvent) => ({ id, seq, ts });

export const messageFields = (event: AnyEvent) => ({
  id: event.id,
  seq: event.seq,
  ts: event.ts,
  turn: event.trace_id ?? null,
  channel: visibleChannel(event),
});
