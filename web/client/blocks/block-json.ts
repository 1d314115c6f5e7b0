/** The JSON of an `Assembler`: the same as in Python. */

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
