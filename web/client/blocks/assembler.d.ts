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

/** An image of a result. */
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

/** A source of a text; `fields` have the names of the wire. */
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
  /** The block was retracted. */
  readonly void: boolean;
  /** The JSON value of a complete block; undefined if its text is no JSON, or its type has none. */
  readonly value: Json | undefined;
  /** The text so far. */
  readonly text: string;
  readonly citations: readonly BlockCitation[];
  readonly images: readonly BlockImage[];
  readonly results: readonly Block[];
  /** Of a result: its call, if there was one. */
  readonly call: Block | null;
}

/** One agent with its blocks. */
export declare class Agent {
  private constructor();
  readonly id: string;
  /** The agent's name, or "". */
  readonly name: string;
  readonly meta_init: JsonObject | null;
  readonly meta_final: JsonObject | null;
  /** The agent's blocks and results, in the order in which they opened. */
  readonly order: readonly Block[];
  /** Return the unanswered calls of the agent's last wait. */
  pending(): PendingFrontendCall[];
}

interface BlockJsonBase {
  agent: string;
  complete: boolean;
}

/** A value as `Name`, or `raw` text that is no JSON. */
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

/** Rebuilds the agents and blocks of one session from messages of the dialect `blocks`. */
export declare class Assembler {
  /** How many messages were not valid. */
  readonly dropped: number;
  readonly agents: ReadonlyMap<string, Agent>;
  /** The blocks of all agents as they opened; results are in their call. */
  readonly blocks: Block[];
  /** The calls that the page must answer. */
  readonly pending: PendingFrontendCall[];
  /** Accept one message with its SSE id; return the changed blocks, void ones too. A result changes its call. */
  feed(message: string | Uint8Array, id?: string): Block[];
  /** End the stream; return the blocks that stay incomplete. */
  flush(): Block[];
  /** Return everything as JSON, the same as in Python. Values are shared, not copied. */
  asJson(): AssemblerJson;
  /** Return everything as text, one agent after the other. */
  transcript(): string;
}
