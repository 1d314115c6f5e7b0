import type { Action } from "./views.js";
import type { ApprovalRequest, Event, EventType, Fault, Json, Payloads } from "./events.js";
import type { Bubble } from "./transcript.js";
import type { MetersReport } from "./meters.js";
import type { Document } from "./documents.js";
import type { Pending } from "./pending.js";

/** An event that a page posts. With an `id` of its own it can be posted again, and happens once. */
export type Posted = { [Type in EventType]: { type: Type; payload: Payloads[Type]; id?: string } }[EventType];

/** Where a message is; `session` is said to who did not name one. */
export interface Sent {
  eventId: number;
  id: string;
  turn: string;
  session?: string;
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
  /** The roles that the member may make links for. */
  invites: string[];
  /** Only for members who see every channel. */
  last?: number;
}

/** An application: `guide` is Markdown, `types` are its own events, a `process` takes commands too. */
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

/** Somebody of a team; `born` is when it was first there. */
export interface Member {
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

/** A team on its nine seats; `hatching` is since when somebody is expected. */
export interface Team {
  channel: string | null;
  hatching: string | null;
  grid: Array<Member | null>;
}

export interface StateAnswer<State = Json> {
  seq: number;
  state: State;
  transcript?: Bubble[];
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

/** What a call is known by: an item of `tool.await`, of `tool.call`, or of what is open. */
export interface CallName {
  call_id: string;
  tool: string;
}

/** What a page asks of a server. Everything that changes something happens once, however often it is sent. */
export declare class Client {
  /** With a `principal` the server answers only that one: a page whose cookie is another's now gets `OtherPrincipal`. */
  constructor(options?: { url?: string; token?: string; principal?: string; retryMs?: number });
  /** Send a message; without a session to the caller's own one of the application. */
  send(
    message: string,
    options?: { session?: string; app?: string; channel?: string; target?: string; key?: string },
  ): Promise<Sent>;
  /** Post events, all or none; their seqs. */
  dispatch(session: string, events: Posted[]): Promise<number[]>;
  /** Stop what runs in a session, or one turn or agent of it. */
  stop(session: string, options?: { turn?: string; agent?: string }): Promise<number>;
  /** Answer a call that waits for the page. */
  answer(session: string, call: CallName, result: Json): Promise<number>;
  /** Say that a call cannot be answered. */
  fail(session: string, call: CallName, fault: Fault): Promise<number>;
  decide(
    session: string,
    request: Pick<ApprovalRequest, "call_id" | "args_hash">,
    decision: "approve" | "deny",
    notes?: string,
  ): Promise<number>;
  /** Act on a view; `shown` is the id of the `assistant.view` that the person saw. */
  submitView(session: string, viewId: string, action: Action, options?: { shown?: string }): Promise<number>;
  /** Give the input that a call asked for. */
  submitInput(session: string, call: { call_id: string }, values: { [name: string]: Json }): Promise<number>;
  /** The path of a link that makes one person a member with these roles: once, within 7 days. */
  link(session: string, roles: string[], options?: { key?: string }): Promise<string>;
  /** The open invitations of the caller, or with a session its open links and invitations. */
  listInvites(options?: { session?: string }): Promise<InviteInfo[]>;
  /** Become a member by an invitation of the caller's own. */
  acceptInvite(session: string, invite: string): Promise<{ eventId: number }>;
  /** Decline an invitation of the caller's own. */
  declineInvite(session: string, invite: string): Promise<{ eventId: number }>;
  /** End a link or an invitation that was not used. */
  revokeInvite(session: string, invite: string): Promise<{ eventId: number }>;
  createSession(options?: { app?: string; title?: string; key?: string }): Promise<string>;
  /** A page of the caller's sessions, the last active first, or the one that is named; `next` is the page after it. */
  listSessions(options?: {
    session?: string;
    limit?: number;
    after?: string;
  }): Promise<{ sessions: SessionInfo[]; next?: string }>;
  /** The state now, or as of a seq. */
  state<State = Json>(
    session: string,
    options?: { at?: number | string; include?: Array<"transcript" | "meters" | "open" | "roster"> },
  ): Promise<StateAnswer<State>>;
  /** The documents of a session, or of a page of the caller's sessions; `next` is the page after it. */
  documents(options?: {
    session?: string;
    type?: string;
    category?: string;
    limit?: number;
    after?: string;
  }): Promise<{ documents: Array<Document & { session_id: string }>; next?: string }>;
  /** The log as lines of JSON; the first describes the session, each other one is an event. */
  log(session: string, options?: { after?: number | string }): Promise<string>;
  /** Who is asking; `roles` are those of every session. A guest makes no sessions: it has the one it was invited to. */
  /** Forget who is signed in, in this browser. */
  signOut(): Promise<unknown>;
  me(): Promise<{ name: string; roles: string[]; apps: string[]; may_create_sessions: boolean; session?: string }>;
  /** The applications that are served, the one first that is meant if none is named. */
  apps(): Promise<AppInfo[]>;
}

export type { Event };
