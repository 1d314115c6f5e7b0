import type { Json } from "../events.js";

/** The most parts (nodes, columns, rows, options) that a view has. */
export declare const PARTS: number;

/** A part and all parts in it, each with its path and its level. */
export declare function parts(
  part: { [key: string]: Json },
  path?: string,
  level?: number,
): Generator<{ part: { [key: string]: Json }; path: string; level: number }>;

/** Whether a tree takes a view away. */
export declare function isEmpty(tree: Json): boolean;

/** What is wrong with a tree, and where (a JSON path); null if it can be shown. */
export declare function flaw(tree: Json): { says: string; path: string } | null;
