import type { Json } from "../events.js";

/** The most parts (nodes, columns, rows, options) that a view has. */
export declare const MAX_PARTS: number;

/** A part and all parts in it, each with its path and its level. */
export declare function walkView(
  part: { [key: string]: Json },
  path?: string,
  level?: number,
): Generator<{ part: { [key: string]: Json }; path: string; level: number }>;

/** Whether a tree takes a view away. */
export declare function isEmptyView(tree: Json): boolean;

/** What is wrong with a tree, and where (a JSON path); null if it can be shown. */
export declare function validateView(tree: Json): { message: string; path: string } | null;
