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
  "ui.message": UiMessage;
  "ui.action": UiAction;
  "ui.command": UiCommand;
  "agent.start": AgentStart;
  "agent.end": AgentEnd;
  "agent.handoff": AgentHandoff;
  "agent.usage": AgentUsage;
  "context.compact": ContextCompact;
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
}

export type EventType = keyof Payloads & string;

/** Any event; its `type` tells which payload it has. */
export type LogEvent = { [Type in EventType]: Envelope<Type, Payloads[Type]> }[EventType];

/** A model process or the server started; the server appends it to every open session after a restart. */
export interface ProcessStart {
  process: "model" | "server";
  pid: number;
  model?: string;
  demo_mode?: boolean;
}

/** A model process or the server ended, with the true reason. The session lives on. */
export interface ProcessEnd {
  process: "model" | "server";
  reason: "inactivity_timeout" | "process_crash" | "server_shutdown" | "user_ended";
  pid?: number;
  exit_code?: number;
}

/** The sign-in state of a model process changed; the server reports it. */
export interface ProcessAuth {
  method: "none" | "oauth" | "setup_token";
  needs_setup: boolean;
  expires_in_minutes?: number;
}

/** Something failed that is nobody's tool result: a model, a process, a limit. The runtime reports it. */
export interface SessionError {
  code: string;
  /** For people: no stack traces, no secrets. */
  message: string;
  retriable?: boolean;
  terminal?: boolean;
}

/** Somebody became a member of the session, has other roles now, or with no role is a member no more. The server appends it, at the session's start for whoever made it. */
export interface SessionMember {
  principal: string;
  roles?: string[];
  /** What people call the member; without it the name stays as it was. */
  name?: string;
  /** The invite that was used up by joining. */
  invite_id?: string;
}

/** A member made a link for one person, or invited a principal; the actor is the member who invites. The invite is open until a `session.member` or a `session.invite_end` names it. */
export interface SessionInvite {
  invite_id: string;
  roles: string[];
  /** Milliseconds since 1970. */
  expires_ms: number;
  /** Who is invited; without it the invite is a link, for who redeems it. */
  principal?: string;
  /** The actor had the right to invite by a server role alone. */
  as_operator?: boolean;
}

/** An invite ended without a new member; the actor is who revoked or declined it. Invites of a member who loses the right to invite are revoked with the event that takes the right. */
export interface SessionInviteEnd {
  invite_id: string;
  reason: "declined" | "expired" | "revoked";
}

/** The session has another title; until then the first message is its title. */
export interface SessionTitle {
  title: string;
}

/** A person wrote to the agent; the send route appends it. It opens a turn or joins one that waits. */
export interface UiMessage {
  text: string;
  speaker?: string;
  /** The agent that is addressed. */
  target?: string;
  channel?: string;
}

/** A person acted on a view that was sent, or gave the input a call waits for. */
export interface UiAction {
  action: FormSubmit | TableSave | TableAddRow | TableDeleteRow | ButtonClick | InputSubmit;
  view_id?: string;
  /** The pending call this answers. */
  call_id?: string;
  /** The `assistant.view` the person saw; the server fills it in. The action is refused if another one took its place, also while the action waited for its turn. */
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
  /** The rows to delete; a row that is in neither list stays as it is. */
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

export interface InputSubmit {
  kind: "input.submit";
  values: { [key: string]: Json };
}

/** A person told the session what to do: summon, wake, start, end, offer work, ask for help, stop. */
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

/** Stop everything in the channel of the command. The fields only say when it does nothing. */
export interface Stop {
  kind: "stop";
  /** Only if this turn is still open; other turns stop with it. */
  turn?: string;
  /** Only if this agent is still open; other agents stop with it. */
  agent_id?: string;
}

/** An invocation began: by a prompt, a call of its parent or a hand-off. The runtime emits it. */
export interface AgentStart {
  name: string;
  via: "call" | "handoff" | "prompt";
  model?: string;
  parent_id?: string;
  /** The tool call that spawned it. */
  call_id?: string;
  tools?: string[];
  prompt?: string;
  /** The session id the source itself uses. */
  source_session?: string;
  /** The ended agent whose conversation it goes on with. */
  resumes?: string;
}

/** An invocation ended, whatever ended it. The runtime emits it; after a crash, recovery does. */
export interface AgentEnd {
  stop_reason: "cancelled" | "context_window" | "end_turn" | "error" | "handoff" | "max_steps" | "max_tokens" | "refusal" | "stop_sequence" | "timeout";
  steps?: number;
  usage?: Usage;
  cost?: Cost;
  result?: string;
  files?: FileInfo[];
  /** Who ended it from outside: a person stopped it, its turn took too long, or the process that ran it ended. None: it ended by itself. */
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

/** An agent gave its caller and its depth to another one; stands between the call's result and its end. */
export interface AgentHandoff {
  to: string;
  to_agent_id: string;
}

/** One completion of a model finished; the runtime reports its tokens. An unknown price is no cost. */
export interface AgentUsage {
  model: string;
  usage: Usage;
  cost?: Cost;
  duration_ms?: number;
}

/** The model's context was compressed; the runtime or a model process reports it. */
export interface ContextCompact {
  tokens_before?: number;
  tokens_after?: number;
}

/** A block began; for text, with its first visible character. */
export interface BlockStart {
  block_id: string;
  kind: "other" | "text" | "thinking" | "tool_call";
  call_id?: string;
  tool?: string;
}

/** A piece of an open block; the model's channel emits it as it arrives. */
export interface BlockDelta {
  block_id: string;
  text: string;
}

/** A block is finished; aborted ones carry what there was of the text. */
export interface BlockEnd {
  block_id: string;
  status: "aborted" | "complete";
  /** The partial text of an aborted block. */
  text?: string;
  /** Who ended it from outside: a person stopped it, its turn took too long, or the process that ran it ended. None: it ended by itself. */
  reason?: "interrupted" | "stopped" | "timeout";
}

/** Blocks that were shown are void, finished ones too; a retry emits it before it starts again. */
export interface BlockRetract {
  block_ids: string[];
  reason: string;
}

/** A whole text of the assistant: the durable twin of a text block, without tags and markers. */
export interface AssistantMessage {
  text: string;
  citations?: Citation[];
  block_id?: string;
  /** The provider's id of the whole reply. */
  message_id?: string;
  speaker?: string;
  channel?: string;
}

/** One source of a text; which fields are set depends on `type`, the provider's name of the kind. */
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

/** The model's thinking: the durable twin of a thinking block. Never parsed for tags. */
export interface AssistantThinking {
  text: string;
  signature?: string;
  /** The provider's encrypted form, passed back as it is. */
  redacted?: string;
  block_id?: string;
  message_id?: string;
}

/** A block of a kind that has no event of its own, whole: the durable twin of an `other` block. */
export interface AssistantBlock {
  kind: string;
  /** The block as it came, passed back as it is. */
  data: { [key: string]: Json };
  block_id?: string;
  message_id?: string;
}

/** The assistant showed a form, a table or another view; actions on it come back as `ui.action`. */
export interface AssistantView {
  view: View;
}

/** What is shown; another view with the same `view_id` takes its place, an empty one takes it away. */
export interface View {
  kind: "a2ui.v1";
  view_id: string;
  tree: { [key: string]: Json };
  title?: string;
}

/** Files were made during the run, for instance in a code execution container. */
export interface AssistantFiles {
  files: FileInfo[];
}

/** The model asked for a tool. `executor` says who runs it: this process, the page, the provider or a process elsewhere, which follows the session and answers. */
export interface ToolCall {
  call_id: string;
  tool: string;
  args: { [key: string]: Json };
  executor?: "backend" | "frontend" | "provider" | "remote";
  block_id?: string;
  message_id?: string;
  /** Arguments that never became JSON, as they came. */
  incomplete?: string;
  /** What else the provider's block says, passed back as it is. */
  extra?: { [key: string]: Json };
  /** A call of this tool that repeats the key is answered, not run again. */
  idempotency_key?: string;
}

/** Output of a running tool; the tool emits it. */
export interface ToolProgress {
  call_id: string;
  text: string;
}

/** A call was answered, by whoever ran it. `ok`, `result` and `error` are always there, null included. */
export interface ToolResult {
  call_id: string;
  tool: string;
  ok: boolean;
  result: Json;
  error: Fault | null;
  /** The provider's name of the result. */
  kind?: string;
  images?: ImageInfo[];
  /** What else the provider's block says, passed back as it is. */
  extra?: { [key: string]: Json };
}

/** Why a call failed; no stack traces. */
export interface Fault {
  code: string;
  message: string;
  details?: { [key: string]: Json };
}

/** An image by its address: of a blob, or a data URI if that is short. It must fit into one message. */
export interface ImageInfo {
  src: string;
  media_type: string;
}

/** The agent waits for the page to answer these calls; its backend calls are done. */
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

/** A call may run only if a person agrees; bound to the call and its arguments, single use, expiring. */
export interface ApprovalRequest {
  call_id: string;
  tool: string;
  args_hash: string;
  risk: string;
  reason?: string;
  expires_at?: string;
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

/** Model output that looked like an event and was refused. The text itself is not kept, only its hash. */
export interface ParseReject {
  reason: string;
  /** Characters of the refused text. */
  length: number;
  sha256: string;
  /** The event it wanted to be, if that could be read. */
  name?: string;
  block_id?: string;
}

/** An agent joined the team; parsed from the model's registration marker. */
export interface RosterJoin {
  name: string;
  /** The place on the 3 x 3 grid. */
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

/** Who of the team is there; parsed from the model's status marker. Whoever is not listed sleeps. */
export interface RosterStatus {
  agents: RosterMember[];
}

export interface RosterMember {
  name: string;
  status: "alive" | "idle" | "shutdown";
  /** The place on the 3 x 3 grid. */
  seat: number;
}

/** Work was offered to an agent of the team. */
export interface RosterOffer {
  agent: string;
  jobs: string[];
}

/** An artifact was written; emitted after the tool's result confirmed it. */
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

/** The agent drew on its screen; found in a tool call. */
export interface ScreenCommand {
  command: string;
  expression?: string;
}

/** The agent helped with a job form. */
export interface JobSuggest {
  suggestions: { [key: string]: Json };
}
