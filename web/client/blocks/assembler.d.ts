import type { Json } from "../events.js";

export type JsonObject = { [key: string]: Json };
export type Scalar = boolean | number | string;

export type CallType = "tool_call" | "server_tool_call";
export type ResultType = "tool_result" | "server_tool_result";
export type BlockType =
  | "text"
  | "thinking"
  | CallType
  | ResultType
  | "awaiting_frontend_tools"
  | "meta_files"
  | "error";

/** A picture in a result. */
export interface BlockImage {
  src: string;
  media_type: string;
}

/** A call that the page must answer. */
export interface FrontendCall {
  tool_use_id: string;
  [key: string]: Json;
}

/** An awaited call and the agent that waits. */
export interface PendingFrontendCall extends FrontendCall {
  agent: string;
}

/** A source of a text; `fields` are its kind and place under the names of the wire. */
export declare class BlockCitation {
  private constructor();
  readonly fields: { [key: string]: Scalar };
  readonly cited_text: string;
}

/** One block; see `complete`, `void` and `value` for its state. */
export declare class Block {
  private constructor();
  readonly type: BlockType;
  readonly agent: string;
  readonly id: string | null;
  readonly name: string | null;
  /** False while the block is open; stays so when the stream ends early. */
  readonly complete: boolean;
  /** The block was taken back. */
  readonly void: boolean;
  /** What the text of a complete block says as JSON; undefined when it is none, or the block is no JSON. */
  readonly value: Json | undefined;
  /** All that the block said so far. */
  readonly text: string;
  readonly citations: readonly BlockCitation[];
  readonly images: readonly BlockImage[];
  readonly results: readonly Block[];
  /** Of a result: its call, if there was one. */
  readonly call: Block | null;
}

/** What is known of one agent. */
export declare class Agent {
  private constructor();
  readonly id: string;
  /** What the agent is called; "" if nobody said. */
  readonly name: string;
  readonly meta_init: JsonObject | null;
  readonly meta_final: JsonObject | null;
  /** The agent's blocks as they opened, results too. */
  readonly order: readonly Block[];
  /** The calls that the agent last waited for and that have no result since. */
  pending(): PendingFrontendCall[];
}

interface BlockJsonBase {
  agent: string;
  complete: boolean;
}

/** A value as `Name`, or as `raw` text where it could not be read as JSON. */
type ValueJson<Name extends string, Value> =
  | ({ [key in Name]: Value } & { raw?: undefined })
  | ({ [key in Name]?: undefined } & { raw: string });

export type CitationJson = { cited_text: string; [key: string]: Scalar };

export interface TextJson extends BlockJsonBase {
  type: "text";
  text: string;
  citations: CitationJson[];
}

export interface ThinkingJson extends BlockJsonBase {
  type: "thinking";
  text: string;
}

export interface ResultJson extends BlockJsonBase {
  type: ResultType;
  id: string | null;
  name: string | null;
  text: string;
  images: BlockImage[];
}

export type CallJson = BlockJsonBase & {
  type: CallType;
  id: string | null;
  name: string | null;
  results: ResultJson[];
} & ValueJson<"args", Json>;

export type AwaitingJson = BlockJsonBase & { type: "awaiting_frontend_tools" } & ValueJson<"calls", FrontendCall[]>;
export type FilesJson = BlockJsonBase & { type: "meta_files" } & ValueJson<"files", Json[]>;
export type ErrorJson = BlockJsonBase & { type: "error" } & ValueJson<"error", Json>;

export type BlockJson = TextJson | ThinkingJson | CallJson | ResultJson | AwaitingJson | FilesJson | ErrorJson;

export interface AgentJson {
  agent: string;
  meta_init: JsonObject | null;
  meta_final: JsonObject | null;
}

export interface AssemblerJson {
  agents: AgentJson[];
  blocks: BlockJson[];
  pending: PendingFrontendCall[];
  dropped: number;
}

/** Rebuilds what the agents of one session said from the messages of the dialect `blocks`. */
export declare class Assembler {
  /** How many messages could not be used. */
  readonly dropped: number;
  readonly agents: ReadonlyMap<string, Agent>;
  /** The blocks of all agents as they opened; results with a call are found there. */
  readonly blocks: Block[];
  /** The calls that the page must answer. */
  readonly pending: PendingFrontendCall[];
  /** Take one message with its SSE id; return the blocks that changed, void ones too. A result changes its call. */
  feed(message: string | Uint8Array, id?: string): Block[];
  /** The stream is over: what is open stays incomplete. Returns these blocks. */
  flush(): Block[];
  /** Everything as plain JSON, the same in Python and JavaScript. Values are shared, not copied. */
  asJson(): AssemblerJson;
  /** Everything as text for people, one agent after the other. */
  transcript(): string;
}
