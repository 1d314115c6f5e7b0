/**
 * What a page shows of a session: messages with parts, and what waits, works and costs.
 *
 * All objects are immutable. A change replaces the changed part, its message and the lists on the path to it; every
 * other object stays the same one, so `===` tells whether something changed.
 */

import type { HttpError } from "../api/errors.js";
import type {
  AgentEnd,
  ApprovalDecision,
  ApprovalRequest,
  Citation,
  ErrorInfo,
  ImageInfo,
  Json,
  SessionError,
  ToolCall,
  UiAction,
  View,
} from "../events.js";
import type { OpenAgent, PendingCall } from "../folds/pending.js";
import type { MetersState } from "../folds/meters.js";
import type { FeedState } from "../transport/connect.js";

interface PartFields {
  /** Unique in its message; it stays the same while the part changes. */
  readonly id: string;
  /** The event that began the part, or that completed its text. */
  readonly seq: number;
  readonly ts: string;
}

/** A text of a person or a model, or a model's thinking. */
export interface TextPart extends PartFields {
  readonly type: "text" | "thinking";
  readonly text: string;
  readonly state: "streaming" | "done" | "aborted";
  /** Why an aborted text ends: a person stopped it, a restart, a timeout, else an error of the model. */
  readonly aborted: "stop" | "restart" | "timeout" | "error" | null;
  readonly citations: readonly Citation[];
  readonly speaker: string | null;
  /** The provider has encrypted this thinking. */
  readonly redacted: boolean;
}

/**
 * The state of a call: its arguments stream (`writing`), its message is not complete (`queued`), it runs, it waits for
 * a person, or it has ended.
 */
export type CallState = "writing" | "queued" | "running" | "waiting" | "done" | "error" | "denied" | "aborted";

/** A call of a tool. Its questions, approvals and agents are parts behind it, with the same `call_id`. */
export interface CallPart extends PartFields {
  readonly type: "call";
  readonly call_id: string;
  readonly tool: string;
  readonly state: CallState;
  /** Null while the model writes them. */
  readonly args: { readonly [name: string]: Json } | null;
  /** The arguments as far as the model has written them; "" when they are complete. */
  readonly written: string;
  /** Arguments that are no valid JSON. */
  readonly incomplete: string | null;
  readonly executor: NonNullable<ToolCall["executor"]>;
  /** The end of the output of a running tool. */
  readonly progress: string;
  readonly result: Json;
  readonly error: ErrorInfo | null;
  readonly images: readonly ImageInfo[];
}

/** What a person did: who and when. */
export interface Answer {
  readonly actor: string | null;
  readonly seq: number;
  readonly ts: string;
}

/** A call that a person answers in the page: `answer` and `fail` of the store take it. `args` are its questions. */
export interface QuestionPart extends PartFields {
  readonly type: "question";
  readonly call_id: string;
  readonly tool: string;
  readonly args: { readonly [name: string]: Json };
  /** A tool of the server wants values by name, a tool of the page wants its result. */
  readonly wants: "values" | "result";
  /** Who may answer; empty is any member. */
  readonly roles: readonly string[];
  /** `closed` if the call ended without an answer. */
  readonly state: "open" | "answered" | "closed";
  /** The values or the result that a person gave. */
  readonly answer: (Answer & { readonly value: Json }) | null;
}

/** A call that needs a person's approval: `decide` of the store takes it. */
export interface ApprovalPart extends PartFields {
  readonly type: "approval";
  readonly call_id: string;
  readonly tool: string;
  readonly request: ApprovalRequest;
  readonly state: "open" | ApprovalDecision["decision"] | "closed";
  readonly answer: (Answer & { readonly notes: string | null }) | null;
}

/** An action of a person on a view. */
export interface ViewAction extends Answer {
  readonly id: string;
  readonly turn: string | null;
  readonly channel: string | null;
  readonly action: UiAction["action"];
}

/** A form, a table or another view: `act` of the store takes it. */
export interface ViewPart extends PartFields {
  readonly type: "view";
  readonly view_id: string;
  /** The id of the event that showed it: an action's `shown`. */
  readonly event_id: string;
  readonly view: View;
  /** Messages of A2UI that changed the surface since. */
  readonly updates: ReadonlyArray<View["tree"]>;
  readonly state: "open" | "replaced" | "closed";
  readonly actions: readonly ViewAction[];
}

/** A file that an agent created or a person sent. */
export interface FilePart extends PartFields {
  readonly type: "file";
  /**
   * An address relative to the server's root, or any other that a member wrote: a page must not load that one.
   * `Client.readFile` reads files of the server alone.
   */
  readonly src: string;
  readonly filename: string | null;
  readonly media_type: string | null;
  readonly size_bytes: number | null;
}

/** How an agent ended. `actor` is the person who stopped it. */
export interface AgentEnding extends Answer {
  readonly stop_reason: AgentEnd["stop_reason"];
  readonly reason: AgentEnd["reason"] | null;
}

interface AgentFields {
  readonly agent_id: string | null;
  readonly agent_name: string | null;
  readonly model: string | null;
  readonly depth: number;
  readonly state: "running" | "waiting" | "done";
  readonly ending: AgentEnding | null;
  readonly parts: readonly Part[];
}

/** An agent that a call of the agent around it has started, with all that it does. */
export interface AgentPart extends PartFields, AgentFields {
  readonly type: "agent";
  readonly call_id: string | null;
}

/** The agent hands the conversation over; the target continues in a message of its own. */
export interface HandoffPart extends PartFields {
  readonly type: "handoff";
  readonly to: string;
  readonly to_agent_id: string;
}

export interface ErrorPart extends PartFields {
  readonly type: "error";
  readonly error: SessionError;
}

/** Any other event, such as one of the application. */
export interface EventPart extends PartFields {
  readonly type: "event";
  readonly name: string;
  readonly payload: Json;
  readonly actor: string | null;
  readonly origin: string;
}

export type Part =
  | TextPart
  | CallPart
  | QuestionPart
  | ApprovalPart
  | ViewPart
  | FilePart
  | AgentPart
  | HandoffPart
  | ErrorPart
  | EventPart;

interface MessageFields extends PartFields {
  readonly turn: string | null;
  /** The role whose members see it; null is all members. */
  readonly channel: string | null;
  readonly parts: readonly Part[];
}

/** A message of a person. */
export interface UserMessage extends MessageFields {
  readonly role: "user";
  /** The principal who sent it; `members` has the names. */
  readonly author: string | null;
  readonly speaker: string | null;
  readonly target: string | null;
  /**
   * `sending` until the server has it, `queued` until its turn starts. A `failed` message was not accepted: `retry` or
   * `discard` it.
   */
  readonly state: "sending" | "failed" | "queued" | "sent";
  /** Why it failed. */
  readonly error: Error | null;
}

/** What an agent says and does until a person writes again. */
export interface AgentMessage extends MessageFields, AgentFields {
  readonly role: "assistant";
}

/** An event that no agent and no message has: one part. */
export interface EventMessage extends MessageFields {
  readonly role: "event";
}

export type Message = UserMessage | AgentMessage | EventMessage;

/** A principal of the session. Its name proves nothing: guests choose theirs. */
export interface Member {
  readonly principal: string;
  readonly name: string | null;
  readonly roles: readonly string[];
}

/** How the session ended. `actor` is the principal who closed it. */
export interface SessionEnding extends Answer {
  readonly reason: string | null;
}

/** The numbers of the session, by turn and by agent, and the calls whose time still counts. */
export type SessionUsage = MetersState;

export interface Snapshot {
  readonly session: string;
  readonly messages: readonly Message[];
  /** Messages whose turn has not started while another turn runs. */
  readonly queue: readonly UserMessage[];
  /** The calls that wait for a person: for an answer or an approval. */
  readonly pending: readonly PendingCall[];
  /** The open agents; those that an agent called are inside it. */
  readonly agents: readonly OpenAgent[];
  /**
   * `waiting` if every open agent waits; `running` also while a message waits for its turn; `closed` when the session
   * has ended.
   */
  readonly status: "idle" | "running" | "waiting" | "closed";
  readonly connection: FeedState;
  /** Whether all events that the session had when the store connected are in `messages`. */
  readonly hasHistory: boolean;
  /** Why the server refused the connection. */
  readonly error: HttpError | null;
  readonly usage: SessionUsage;
  /** The title of the session, if it got one. */
  readonly title: string | null;
  /** Who closed the session, and why; null while it is open. */
  readonly ending: SessionEnding | null;
  readonly members: readonly Member[];
  /** The seq of the last event; -1 before the first. */
  readonly last: number;
}
