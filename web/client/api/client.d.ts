import type { ApprovalRequest, EventType, ErrorInfo, Json, LogEvent, Payloads } from "../events.js";
import type { SessionDocument } from "../folds/documents.js";
import type { MetersReport } from "../folds/meters.js";
import type { Pending } from "../folds/pending.js";
import type { TranscriptMessage } from "../folds/transcript.js";
import type { Action } from "../views/views.js";

/** An event that a page posts. With an `id` it can be posted again and is appended once. */
export type PostedEvent = { [Type in EventType]: { type: Type; payload: Payloads[Type]; id?: string } }[EventType];

/** The position of a sent message; `session` only if the request named none. */
export interface SendResult {
  eventId: number;
  id: string;
  turn: string;
  session?: string;
}

/** An event of the application by its bare name. With an `id`, which may be a UUID, it is appended once. */
export interface DirectEvent {
  type: string;
  data?: { [name: string]: Json };
  id?: string;
}

/**
 * What came of a chat: the state after it, the text to show ("" if the turn has events alone), the application's events of
 * the turn, and the conversation.
 */
export interface ChatResult<State = Json> {
  turn: string;
  seq: number;
  state: State;
  displayText: string;
  events: Array<{ type: string; data: { [name: string]: Json }; origin: LogEvent["origin"] }>;
  messages: TranscriptMessage[];
}

export interface SessionInfo {
  session_id: string;
  app: string;
  title: string;
  state: "idle" | "running" | "waiting" | "closed";
  roles: string[];
  members: number;
  created: string;
  last_activity: string;
  /** The roles that the member may invite. */
  invites: string[];
  /** Only for members who see every channel. */
  last?: number;
}

/** An application: `guide` is Markdown, `types` are its own event types; with `process` it takes commands. */
export interface AppInfo {
  name: string;
  title: string;
  guide: string;
  tries: string[];
  types: string[];
  agents: string[];
  channels: string[];
  process: boolean;
}

/** A member of a team; `born` is the time of its first join. */
export interface TeamMember {
  name: string;
  seat: number;
  state: "hatching" | "alive" | "sleeping";
  color: string;
  color_name: string;
  gender: "man" | "woman";
  eyes: string;
  mouth: string;
  soul: string;
  born: string | null;
  last_alive: string | null;
}

/** A team on its nine seats; `hatching` is the time of the command that expects members. */
export interface Team {
  channel: string | null;
  hatching: string | null;
  grid: Array<TeamMember | null>;
}

export interface StateResponse<State = Json> {
  seq: number;
  state: State;
  transcript?: TranscriptMessage[];
  meters?: MetersReport;
  open?: Pending;
  roster?: Team[];
}

/** An open invite; without a `principal` it is a link. */
export interface InviteInfo {
  session_id: string;
  invite: string;
  app: string;
  title: string;
  roles: string[];
  by: string;
  expires: string;
  principal?: string;
}

/** Identifies a call: an item of `tool.await`, of `tool.call` or of `Pending.calls`. */
export interface CallReference {
  call_id: string;
  tool: string;
}

/** The requests of a page to a server. A change takes effect once, however often it is sent. */
export declare class Client {
  /** With a `principal` the server refuses every other person: a page whose cookie changed gets `OtherPrincipal`. */
  constructor(options?: { url?: string; token?: string; principal?: string; retryMs?: number });
  /** Send a message; without a session to the caller's own session of the application. */
  send(
    message: string,
    options?: { session?: string; app?: string; channel?: string; target?: string; key?: string },
  ): Promise<SendResult>;
  /** Send the events and the message of a role's page; return what came of the turn when it has ended or waits. */
  chat<State = Json>(
    role: string,
    options: { sessionId: string; message?: string; directEvents?: DirectEvent[]; key?: string },
  ): Promise<ChatResult<State>>;
  /** Append events, all or none; return their seqs. */
  dispatch(session: string, events: PostedEvent[]): Promise<number[]>;
  /** Stop all agents of a session, or one turn or agent. */
  stop(session: string, options?: { turn?: string; agent?: string }): Promise<number>;
  /** Answer a call that waits for the page. */
  answer(session: string, call: CallReference, result: Json): Promise<number>;
  /** Answer a call with an error. */
  fail(session: string, call: CallReference, fault: ErrorInfo): Promise<number>;
  decide(
    session: string,
    request: Pick<ApprovalRequest, "call_id" | "args_hash">,
    decision: "approve" | "deny",
    notes?: string,
  ): Promise<number>;
  /** Submit an action on a view; `shown` is the id of the `assistant.view` that the person saw. */
  submitView(session: string, viewId: string, action: Action, options?: { shown?: string }): Promise<number>;
  /** Submit the input that a call asked for. */
  submitInput(session: string, call: { call_id: string }, values: { [name: string]: Json }): Promise<number>;
  /** Create a link that makes one person a member with these roles; return its path. It works once, within 7 days. */
  link(session: string, roles: string[], options?: { key?: string }): Promise<string>;
  /** Return the caller's open invitations, or with a session its open links and invitations. */
  listInvites(options?: { session?: string }): Promise<InviteInfo[]>;
  /** Accept an invitation of the caller. */
  acceptInvite(session: string, invite: string): Promise<{ eventId: number }>;
  /** Decline an invitation of the caller. */
  declineInvite(session: string, invite: string): Promise<{ eventId: number }>;
  /** Revoke an unused link or invitation. */
  revokeInvite(session: string, invite: string): Promise<{ eventId: number }>;
  createSession(options?: { app?: string; title?: string; key?: string }): Promise<string>;
  /**
   * Return a page of the caller's sessions, the last active first, or the named session. `next` is the `after` of the
   * next page.
   */
  listSessions(options?: {
    session?: string;
    limit?: number;
    after?: string;
  }): Promise<{ sessions: SessionInfo[]; next?: string }>;
  /** Return the state now, or at a seq. */
  state<State = Json>(
    session: string,
    options?: { at?: number | string; include?: Array<"transcript" | "meters" | "open" | "roster"> },
  ): Promise<StateResponse<State>>;
  /**
   * Return the documents of a session, or of a page of the caller's sessions. `next` is the `after` of the next page.
   */
  documents(options?: {
    session?: string;
    type?: string;
    category?: string;
    limit?: number;
    after?: string;
  }): Promise<{ documents: Array<SessionDocument & { session_id: string }>; next?: string }>;
  /** Return the log as lines of JSON: the first describes the session, each other one is an event. */
  log(session: string, options?: { after?: number | string }): Promise<string>;
  /** Sign this browser out. */
  signOut(): Promise<unknown>;
  /** Return the caller; `roles` are the server roles. A guest has the session of its invitation and creates none. */
  me(): Promise<{ name: string; roles: string[]; apps: string[]; may_create_sessions: boolean; session?: string }>;
  /** Return the applications of the server, the default one first. */
  apps(): Promise<AppInfo[]>;
}

export type { LogEvent };
