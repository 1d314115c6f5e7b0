// The events: generated from `turnlog schema` by generate.mjs; do not edit.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** An event as it is stored in the log. */
export interface Envelope<Type extends string = string, Payload = Json> {
  type: Type;
  id: string;
  seq: number;
  ts: string;
  session_id: string;
  trace_id?: string;
  agent_id?: string;
  agent_name?: string;
  depth?: number;
  channel?: string;
  actor?: string;
  origin: "app" | "model" | "system" | "tool" | "ui";
  payload: Payload;
}

/** The payload of every type. An application adds its own by declaring this interface again. */
export interface Payloads {
  "process.start": ProcessStart;
  "process.end": ProcessEnd;
  "process.auth": ProcessAuth;
  "session.error": SessionError;
  "session.member": SessionMember;
  "session.invite": SessionInvite;
  "session.invite_end": SessionInviteEnd;
  "session.title": SessionTitle;
  "session.close": SessionClose;
  "ui.message": UiMessage;
  "ui.action": UiAction;
  "ui.command": UiCommand;
  "agent.start": AgentStart;
  "agent.end": AgentEnd;
  "agent.handoff": AgentHandoff;
  "agent.usage": AgentUsage;
  "context.compact": ContextCompact;
  "agent.checkpoint": AgentCheckpoint;
  "block.start": BlockStart;
  "block.delta": BlockDelta;
  "block.end": BlockEnd;
  "block.retract": BlockRetract;
  "assistant.message": AssistantMessage;
  "assistant.thinking": AssistantThinking;
  "assistant.block": AssistantBlock;
  "assistant.view": AssistantView;
  "assistant.files": AssistantFiles;
  "tool.call": ToolCall;
  "tool.progress": ToolProgress;
  "tool.result": ToolResult;
  "tool.await": ToolAwait;
  "approval.request": ApprovalRequest;
  "approval.decision": ApprovalDecision;
  "parse.reject": ParseReject;
  "roster.join": RosterJoin;
  "roster.status": RosterStatus;
  "roster.offer": RosterOffer;
  "artifact.write": ArtifactWrite;
  "screen.command": ScreenCommand;
  "job.suggest": JobSuggest;
  "stream.create": StreamCreate;
  "stream.append": StreamAppend;
  "stream.close": StreamClose;
  "stream.touch": StreamTouch;
  "stream.fork": StreamFork;
  "stream.delete": StreamDelete;
  "server.code_use": ServerCodeUse;
  "server.sign_out": ServerSignOut;
}

export type EventType = keyof Payloads & string;

/** Any event; its `type` tells which payload it has. */
export type LogEvent = { [Type in EventType]: Envelope<Type, Payloads[Type]> }[EventType];

/** A model process started, or a server took over the session. `node` tells servers apart. */
export interface ProcessStart {
  process: "model" | "server";
  pid: number;
  model?: string;
  demo_mode?: boolean;
  node?: string;
}

/** A model process or the server ended, and why. The session goes on. */
export interface ProcessEnd {
  process: "model" | "server";
  reason: "inactivity_timeout" | "process_crash" | "server_shutdown" | "user_ended";
  pid?: number;
  exit_code?: number;
}

/** The sign-in state of a model process changed. */
export interface ProcessAuth {
  method: "none" | "oauth" | "setup_token";
  needs_setup: boolean;
  expires_in_minutes?: number;
}

/** A failure that is not the result of a tool call: of a model, a process, or at a limit. */
export interface SessionError {
  code: string;
  /** For people: no stack traces, no secrets. */
  message: string;
  /** What the model's provider reported, without secrets. */
  provider_message?: string;
  retriable?: boolean;
  terminal?: boolean;
}

/** A principal joined the session, got other roles, or left it: `roles` is empty then. The server appends it. The first one is for the principal who created the session. */
export interface SessionMember {
  principal: string;
  roles?: string[];
  /** The display name; without it the name does not change. */
  name?: string;
  /** The invite that this member used. */
  invite_id?: string;
}

/** A member created a link for one person, or invited a principal. The actor is the member who invites. The invite is open until a `session.member` or a `session.invite_end` names it. */
export interface SessionInvite {
  invite_id: string;
  roles: string[];
  /** Milliseconds since 1970. */
  expires_ms: number;
  /** The invited principal; without it the invite is a link for one person. */
  principal?: string;
  /** The actor may invite only because of a server role. */
  as_operator?: boolean;
  /** What the inviter calls the invite, to know it in a list. */
  name?: string;
}

/** An invite ended without a new member. The actor is the principal who revoked or declined it. If a member loses the right to invite, the same append revokes the member's open invites. */
export interface SessionInviteEnd {
  invite_id: string;
  reason: "declined" | "expired" | "revoked";
}

/** The session got a title. Before that, its first message is its title. */
export interface SessionTitle {
  title: string;
}

/** The session was closed. It is the last event: the session accepts no more. The write that closes the session appends it, after every turn has ended. */
export interface SessionClose {
  /** The principal who closed it. */
  by: string;
  /** For people: why it was closed. */
  reason?: string;
}

/** A person wrote to the agent. The message opens a turn, or joins a turn that waits for one. */
export interface UiMessage {
  text: string;
  speaker?: string;
  /** The agent that is addressed. */
  target?: string;
  channel?: string;
  /** The seat of the target in its team: names are not unique. */
  target_seat?: number;
  /** The parts of a message that is more than a text. */
  content?: Array<PromptText | PromptImage | PromptDocument>;
  /** The id that the client gave the conversation; it counts before the first agent. */
  conversation_id?: string;
  /** Tools of the page, for the agents that answer this turn; the page answers them. */
  tools?: ClientTool[];
  /** The id of the message at its client: AG-UI and AI SDK readers get it back. */
  client_message_id?: string;
  /** The W3C trace context of the request: the spans of the turn continue its trace. */
  traceparent?: string;
}

export interface PromptText {
  type: "text";
  text: string;
}

export interface PromptImage {
  type: "image";
  src: string;
  media_type?: string;
  /** The size of the blob. */
  size_bytes?: number;
  /** The name of the file. */
  title?: string;
}

export interface PromptDocument {
  type: "document";
  src: string;
  media_type?: string;
  /** The size of the blob. */
  size_bytes?: number;
  title?: string;
  context?: string;
}

/** A tool that the page of a message runs itself. `parameters` is the JSON schema of its arguments. */
export interface ClientTool {
  name: string;
  description?: string;
  parameters: { [key: string]: Json };
}

/** A person acted on a view, or gave the input that a call waits for. */
export interface UiAction {
  action: FormSubmit | TableSave | TableAddRow | TableDeleteRow | ButtonClick | A2uiAction | InputSubmit;
  view_id?: string;
  /** The pending call this answers. */
  call_id?: string;
  /** The `assistant.view` that the person acted on; the server fills it in. The action is refused if another view has replaced it, also while the action waited for its turn. */
  shown?: string;
}

export interface FormSubmit {
  kind: "form.submit";
  form_id: string;
  values: { [key: string]: Json };
}

export interface TableSave {
  kind: "table.save";
  table_id: string;
  rows: Array<{ [key: string]: Json }>;
  /** The rows to delete; a row in neither list does not change. */
  deleted?: string[];
}

export interface TableAddRow {
  kind: "table.add_row";
  table_id: string;
}

export interface TableDeleteRow {
  kind: "table.delete_row";
  table_id: string;
  row_id: string;
}

export interface ButtonClick {
  kind: "button.click";
  button_id: string;
}

/** A button of an A2UI surface was clicked: the `action` message of the standard, in the log's words. */
export interface A2uiAction {
  kind: "a2ui.action";
  name: string;
  component_id: string;
  context: { [key: string]: Json };
  /** The data model, if the surface asked for it. */
  data_model?: Json;
}

export interface InputSubmit {
  kind: "input.submit";
  values: { [key: string]: Json };
}

/** A person sent a command to the session: summon, wake, start, end, offer work, ask for help, stop. */
export interface UiCommand {
  command: Summon | Wake | StartSession | EndSession | OfferWork | JobHelp | Stop;
}

export interface Summon {
  kind: "summon";
}

export interface Wake {
  kind: "wake";
  agents: WakeAgent[];
}

export interface WakeAgent {
  name: string;
  color: string;
  color_name: string;
  seat: number;
  has_soul: boolean;
  has_transcript: boolean;
}

export interface StartSession {
  kind: "session.start";
  demo_mode?: boolean;
  has_previous_transcript?: boolean;
  has_artifact_catalog?: boolean;
}

export interface EndSession {
  kind: "session.end";
}

export interface OfferWork {
  kind: "offer_work";
  agent: string;
  jobs: string[];
}

export interface JobHelp {
  kind: "job_help";
  form: { [key: string]: Json };
}

/** Stop everything in the channel of the command. The fields are conditions: all must hold. */
export interface Stop {
  kind: "stop";
  /** Only if this turn is still open; other turns stop with it. */
  turn?: string;
  /** Only if this agent is still open; other agents stop with it. */
  agent_id?: string;
}

/** An invocation began: by a prompt, a call of its parent, or a hand-off. */
export interface AgentStart {
  name: string;
  via: "call" | "handoff" | "prompt";
  model?: string;
  parent_id?: string;
  /** The tool call that spawned it. */
  call_id?: string;
  tools?: string[];
  prompt?: string;
  /** The parts of a prompt that is more than a text. */
  content?: Array<PromptText | PromptImage | PromptDocument>;
  /** The session id of the source itself. */
  source_session?: string;
  /** The ended agent whose conversation it continues. */
  resumes?: string;
  /** The id of its conversation, the same in every turn; without it that of the agent. */
  conversation_id?: string;
  /** Who records it from another process: no server runs or continues it. */
  recorder?: string;
}

/** An invocation ended, for whatever reason. After a crash, recovery emits it. */
export interface AgentEnd {
  stop_reason: "cancelled" | "context_window" | "end_turn" | "error" | "handoff" | "max_steps" | "max_tokens" | "refusal" | "stop_sequence" | "timeout";
  steps?: number;
  usage?: Usage;
  cost?: Cost;
  result?: string;
  files?: FileInfo[];
  /** What interrupted it: a person stopped it, its turn took too long, or the process that ran it ended. None: it ended by itself. */
  reason?: "interrupted" | "stopped" | "timeout";
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens?: number;
  cache_creation_tokens?: number;
}

export interface Cost {
  total_cost: number;
  input_cost?: number;
  output_cost?: number;
  cache_read_cost?: number;
  cache_write_cost?: number;
  currency?: "USD";
}

export interface FileInfo {
  file_id: string;
  filename: string;
  storage_location: string;
}

/** An agent handed its caller and depth over to another, between the call's result and its own end. */
export interface AgentHandoff {
  to: string;
  to_agent_id: string;
}

/** The tokens of one completion of a model. `cost` is absent if the price is not known. */
export interface AgentUsage {
  model: string;
  usage: Usage;
  cost?: Cost;
  duration_ms?: number;
}

/** The model's context was compacted. */
export interface ContextCompact {
  tokens_before?: number;
  tokens_after?: number;
}

/** A runtime stored what only it can read, to go on later. The content is a private blob: no member of the session can fetch it. */
export interface AgentCheckpoint {
  /** The framework that can read the content. */
  source: string;
  /** The version of the framework or of its format. */
  version: string;
  /** The name of the private blob, of the same session. */
  blob: string;
  /** True: the agent waits, and its calls that have not begun wait with it. */
  paused?: boolean;
  /** The size of the blob. */
  size_bytes?: number;
}

/** A block began. A text block begins with its first visible character. */
export interface BlockStart {
  block_id: string;
  kind: "other" | "text" | "thinking" | "tool_call";
  call_id?: string;
  tool?: string;
}

/** A piece of an open block, emitted as it arrives. */
export interface BlockDelta {
  block_id: string;
  text: string;
}

/** A block ended. An aborted one carries its partial text. */
export interface BlockEnd {
  block_id: string;
  status: "aborted" | "complete";
  /** The partial text of an aborted block. */
  text?: string;
  /** What interrupted it: a person stopped it, its turn took too long, or the process that ran it ended. None: it ended by itself. */
  reason?: "interrupted" | "stopped" | "timeout";
}

/** Blocks that were sent are withdrawn, complete ones too. A retry emits it before it starts. */
export interface BlockRetract {
  block_ids: string[];
  reason: string;
}

/** A complete text of the assistant: the final event of a text block, without tags and markers. */
export interface AssistantMessage {
  text: string;
  citations?: Citation[];
  block_id?: string;
  /** The provider's id of the whole reply. */
  message_id?: string;
  speaker?: string;
  channel?: string;
}

/** One source of a text. Which fields are set depends on `type`, the provider's name of its kind. */
export interface Citation {
  type: string;
  cited_text: string;
  document_index?: number;
  document_title?: string;
  file_id?: string;
  start_char_index?: number;
  end_char_index?: number;
  start_page_number?: number;
  end_page_number?: number;
  start_block_index?: number;
  end_block_index?: number;
  url?: string;
  title?: string;
  encrypted_index?: string;
  source?: string;
  search_result_index?: number;
}

/** The model's thinking: the final event of a thinking block. Never parsed for tags. */
export interface AssistantThinking {
  text: string;
  signature?: string;
  /** The provider's encrypted form; it is sent back unchanged. */
  redacted?: string;
  block_id?: string;
  message_id?: string;
}

/** A complete block of a kind that has no event of its own: the final event of an `other` block. */
export interface AssistantBlock {
  kind: string;
  /** The provider's block; it is sent back unchanged. */
  data: { [key: string]: Json };
  block_id?: string;
  message_id?: string;
}

/** The assistant showed a form, a table or another view; actions on it come back as `ui.action`. */
export interface AssistantView {
  view: View;
}

/** What a reader shows, by `kind`: `a2ui.v1` is a tree of nodes, `a2ui.v0.9` has messages of A2UI. A later view with the same `view_id` replaces it, an empty tree removes it. Messages of A2UI without `createSurface` update it. The tree of any other kind is shown as JSON. */
export interface View {
  kind: string;
  view_id: string;
  tree: { [key: string]: Json };
  title?: string;
}

/** Files were created during the run, for instance in a code execution container. */
export interface AssistantFiles {
  files: FileInfo[];
}

/** The model called a tool. `executor` is where it runs: in this process, in the page, at the provider, in a remote process that follows the session and appends the result, or in the runtime of the agent itself, such as another framework. */
export interface ToolCall {
  call_id: string;
  tool: string;
  args: { [key: string]: Json };
  executor?: "backend" | "frontend" | "provider" | "remote" | "runtime";
  block_id?: string;
  message_id?: string;
  /** Arguments that are not valid JSON, unchanged. */
  incomplete?: string;
  /** Other fields of the provider's block; they are sent back unchanged. */
  extra?: { [key: string]: Json };
  /** Another call of this tool with the same key gets the same result and is not run. */
  idempotency_key?: string;
}

/** A running tool reported progress. */
export interface ToolProgress {
  call_id: string;
  text: string;
}

/** A call has its result. `ok`, `result` and `error` are always written, also if they are null. */
export interface ToolResult {
  call_id: string;
  tool: string;
  ok: boolean;
  result: Json;
  error: ErrorInfo | null;
  /** The provider's name of the result. */
  kind?: string;
  images?: ImageInfo[];
  /** Other fields of the provider's block; they are sent back unchanged. */
  extra?: { [key: string]: Json };
  /** The id of the message in which a client of AG-UI sent the result. */
  client_message_id?: string;
}

/** Why a call failed, without stack traces. */
export interface ErrorInfo {
  code: string;
  message: string;
  details?: { [key: string]: Json };
}

/** An image by its address: a blob's, or a short data URI. It must fit into one SSE message. */
export interface ImageInfo {
  src: string;
  media_type: string;
  /** The size of the blob. */
  size_bytes?: number;
}

/** The agent waits until the page answers these calls. Its backend calls are done. */
export interface ToolAwait {
  calls: AwaitedCall[];
}

export interface AwaitedCall {
  call_id: string;
  tool: string;
  args: { [key: string]: Json };
  /** Who may answer: one of these; empty is any member. */
  roles?: string[];
}

/** A call needs a person's approval, valid once for this call and its arguments, until it expires. */
export interface ApprovalRequest {
  call_id: string;
  tool: string;
  args_hash: string;
  risk: string;
  reason?: string;
  expires_at?: string;
  /** The arguments, for a reader whose view has no calls; the log does not have them. */
  args?: { [key: string]: Json };
  /** Who may decide: one of these; empty is anyone. */
  roles?: string[];
}

/** A person decided, or the request expired. */
export interface ApprovalDecision {
  call_id: string;
  args_hash: string;
  decision: "approve" | "deny" | "expired";
  notes?: string;
}

/** A parser refused model output that looked like an event. Only its hash is stored, not the text. */
export interface ParseReject {
  reason: string;
  /** Characters of the refused text. */
  length: number;
  sha256: string;
  /** The event that it names, if that is readable. */
  name?: string;
  block_id?: string;
}

/** An agent joined the team. Parsed from the model's registration marker. */
export interface RosterJoin {
  name: string;
  /** The position on the 3 x 3 grid. */
  seat: number;
  color?: string;
  color_name?: string;
  gender?: "man" | "woman";
  face?: Face;
  soul?: string;
  created_at?: string;
}

export interface Face {
  eyes?: string;
  mouth?: string;
}

/** The status of the team's agents. Parsed from the model's status marker; agents not listed sleep. */
export interface RosterStatus {
  agents: RosterMember[];
}

export interface RosterMember {
  name: string;
  status: "alive" | "idle" | "shutdown";
  /** The position on the 3 x 3 grid. */
  seat: number;
}

/** Jobs were offered to an agent of the team. */
export interface RosterOffer {
  agent: string;
  jobs: string[];
}

/** A tool wrote an artifact, and its result confirmed it. */
export interface ArtifactWrite {
  filename: string;
  path: string;
  is_new: boolean;
  size_bytes: number;
  meta?: ArtifactMeta;
}

export interface ArtifactMeta {
  description?: string;
  category?: string;
  chapter?: string;
}

/** An agent sent a command to its screen. Parsed from a tool call. */
export interface ScreenCommand {
  command: string;
  expression?: string;
}

/** An agent suggested values for a job form. */
export interface JobSuggest {
  suggestions: { [key: string]: Json };
}

/** A client created a stream. */
export interface StreamCreate {
  path: string;
  content_type: string;
  /** The stream ends this long after its last use. */
  ttl_s?: number;
  /** RFC 3339, as the client wrote it. */
  expires_at?: string;
  fork?: ForkSource;
  /** What a fork begins with, the oldest part first. */
  inherits?: InheritedPart[];
}

/** The stream that a fork was taken from, and the place that the request named. */
export interface ForkSource {
  path: string;
  position: number;
  sub_offset?: number;
}

/** The part of another session that a fork begins with: its events up to the position `until`. The position after an event is `base` + seq + 1. */
export interface InheritedPart {
  session_id: string;
  epoch: string;
  base: number;
  until: number;
}

/** A client appended JSON messages, or bytes. */
export interface StreamAppend {
  /** Of a stream of JSON. */
  messages?: Json[];
  /** Of a stream of another content type. */
  data?: string;
  producer?: Producer;
  /** Must be greater than the one before. */
  writer_seq?: string;
  /** Nothing can be appended after it. */
  closes?: boolean;
}

/** The sender of a request: its id, the epoch of its process, the number of the request in the epoch. */
export interface Producer {
  id: string;
  epoch: number;
  seq: number;
}

/** A client closed a stream. It can still be read. */
export interface StreamClose {
  producer?: Producer;
}

/** A client used a stream that ends some time after its last use. Not every use is recorded. */
export interface StreamTouch {
}

/** A fork of the stream is about to be created. Its session exists unless that failed. */
export interface StreamFork {
  session_id: string;
}

/** A client deleted a stream. Its events are erased, and its path is free, when no fork of it is left. */
export interface StreamDelete {
}

/** A person has signed in with the code of a sign-in link. No server accepts it again. */
export interface ServerCodeUse {
  number: string;
  /** When the code expires, in seconds since 1970. */
  until: number;
}

/** A person has signed out. No server accepts the cookie again. */
export interface ServerSignOut {
  principal: string;
  /** Without it: all cookies that were made up to `made_ms`. */
  cookie_id?: string;
  made_ms?: number;
  /** When all these cookies have expired, in seconds since 1970. */
  until: number;
}
