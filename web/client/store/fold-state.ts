/**
 * The state of the fold behind a `Snapshot`: the snapshot, and where agents, calls and views have their parts.
 *
 * Places are dropped when an agent ends or a view closes, so they take as much as the open work. The messages that
 * this page sent and whose events have not come (`unsent`) are apart from the folded ones: what the fold does never
 * depends on them.
 */

import type { BlockDelta } from "../events.js";
import type { AnyEvent, IsDeclared } from "../folds/event-text.js";
import { emptyMeters, type MetersState } from "../folds/meters.js";
import { emptyTree, reduceBlock, reduceTree, type TreeState } from "../folds/tree.js";
import { Batch, type Owned } from "../shared/ownership.js";
import type { Answer, Message, Snapshot, UserMessage } from "./types.js";

/** The id of a message, then the ids of agent parts inside it: the holder of parts. */
export type Path = readonly string[];

export interface AgentPlace {
  /** Where its parts are; the last path is the current one. A person's message between them begins another. */
  readonly paths: readonly Path[];
  /** Call id -> part id. */
  readonly calls: ReadonlyMap<string, string>;
  /** The parts of calls whose message is not complete: they do not run yet. */
  readonly queuedCalls: ReadonlyMap<string, true>;
}

export interface ViewPlace {
  readonly path: Path;
  readonly part: string;
  readonly event_id: string;
  readonly channel: string | null;
  readonly view_id: string;
}

export interface FoldState {
  readonly snapshot: Snapshot;
  /** The open agents with their calls and the text of their blocks. */
  readonly tree: TreeState;
  readonly meters: MetersState;
  readonly messages: readonly Message[];
  readonly queue: readonly UserMessage[];
  readonly unsent: readonly UserMessage[];
  /** By agent id; "" has the parts of no agent. */
  readonly agents: ReadonlyMap<string, AgentPlace>;
  /** Open views by `viewKey`. */
  readonly views: ReadonlyMap<string, ViewPlace>;
  /** By turn: the messages that have started no agent. */
  readonly unstarted: ReadonlyMap<string, readonly string[]>;
  /** The last stop, until the next turn starts. */
  readonly lastStop: Answer | null;
  readonly isServerDown: boolean;
}

/** Changes of blocks that a tree does not have yet, the last one first. Deltas that followed each other are one. */
interface BlockChange {
  readonly type: string;
  readonly agentId: string | undefined;
  readonly blockId: string;
  readonly text: string;
  readonly before: BlockChange | null;
  readonly length: number; // of the list
}

const MAX_CHANGES = 64; // then the tree takes them

/**
 * A state whose tree takes the changes of blocks when it is read: a page shows the texts of the messages, and a new
 * tree for every delta would cost as much as the rest of the fold.
 */
export class LazyState implements FoldState {
  snapshot: Snapshot;
  meters: MetersState;
  messages: readonly Message[];
  queue: readonly UserMessage[];
  unsent: readonly UserMessage[];
  agents: ReadonlyMap<string, AgentPlace>;
  views: ReadonlyMap<string, ViewPlace>;
  unstarted: ReadonlyMap<string, readonly string[]>;
  lastStop: Answer | null;
  isServerDown: boolean;
  #tree: TreeState;
  #changes: BlockChange | null;
  #last: number; // the seq that the tree gets with the changes

  constructor(state: FoldState, snapshot: Snapshot = state.snapshot) {
    this.snapshot = snapshot;
    this.meters = state.meters;
    this.messages = state.messages;
    this.queue = state.queue;
    this.unsent = state.unsent;
    this.agents = state.agents;
    this.views = state.views;
    this.unstarted = state.unstarted;
    this.lastStop = state.lastStop;
    this.isServerDown = state.isServerDown;
    const isLazy = state instanceof LazyState;
    this.#tree = isLazy ? state.#tree : state.tree;
    this.#changes = isLazy ? state.#changes : null;
    this.#last = isLazy ? state.#last : this.#tree.last;
  }

  get tree(): TreeState {
    return this.#changes === null && this.#tree.last === this.#last ? this.#tree : this.ownTree(new Batch());
  }

  /** Own the tree with all changes of blocks, and return it. */
  ownTree(batch: Batch): Owned<TreeState> {
    const tree = batch.own(this.#tree, copyTree);
    this.#tree = tree;
    tree.last = this.#last;
    if (this.#changes !== null) this.#takeChanges(tree, batch);
    return tree;
  }

  #takeChanges(tree: Owned<TreeState>, batch: Batch): void {
    const changes: BlockChange[] = [];
    for (let change = this.#changes; change !== null; change = change.before) changes.push(change);
    for (const { type, agentId, blockId, text } of changes.reverse()) {
      reduceBlock(tree, type, agentId, blockId, text, batch);
    }
    this.#changes = null;
  }

  /** Apply an event to the tree. Of these types none begins, ends or changes an agent or a call: that can wait. */
  deferEvent({ type, agent_id: agentId, seq, payload }: AnyEvent, batch: Batch): void {
    this.#last = seq;
    const isDelta = type === "block.delta";
    if (!isDelta && !type.startsWith("block.")) return;
    const { block_id: blockId, text = "" } = payload as BlockDelta;
    let last = this.#changes;
    if (isDelta && last?.type === type && last.blockId === blockId && last.agentId === agentId) {
      const { before, length } = last;
      this.#changes = { type, agentId, blockId, text: last.text + text, before, length };
      return;
    }
    // the text of a block that has ended is not in the tree
    while (type === "block.end" && last?.blockId === blockId && last.agentId === agentId) last = last.before;
    const length = last === null ? 1 : last.length + 1;
    this.#changes = { type, agentId, blockId, text, before: last, length };
    if (length > MAX_CHANGES) this.ownTree(batch);
  }

  /** Apply an event to the tree, now. */
  applyEvent(event: AnyEvent, batch: Batch, isDeclared: IsDeclared): void {
    reduceTree(this.ownTree(batch), event, batch, isDeclared);
    this.#last = event.seq;
  }
}

const copyTree = (tree: TreeState): TreeState => ({ ...tree });

/** Return the state before the first event. */
export const emptyState = (session: string): FoldState => ({
  snapshot: {
    session,
    messages: [],
    queue: [],
    pending: [],
    agents: [],
    status: "idle",
    connection: "connecting",
    hasHistory: false,
    error: null,
    usage: emptyMeters(),
    title: null,
    ending: null,
    members: [],
    last: -1,
  },
  tree: emptyTree(),
  meters: emptyMeters(),
  messages: [],
  queue: [],
  unsent: [],
  agents: new Map(),
  views: new Map(),
  unstarted: new Map(),
  lastStop: null,
  isServerDown: false,
});

/** Return the state when all events come again: only what this page sent itself is still known. */
export function resetState({ snapshot, unsent }: FoldState): FoldState {
  const empty = emptyState(snapshot.session);
  return { ...empty, unsent, snapshot: { ...empty.snapshot, connection: snapshot.connection } };
}

export const withSnapshot = (state: FoldState, snapshot: Snapshot): FoldState => new LazyState(state, snapshot);
