import type { Json } from "../events.js";

/** The limit of parts (nodes, columns, rows, options) of a view. */
export declare const MAX_PARTS: number;

/** Yield a part and all parts in it, each with its path and its level. */
export declare function walkView(
  part: { [key: string]: Json },
  path?: string,
  level?: number,
): Generator<{ part: { [key: string]: Json }; path: string; level: number }>;

/** Whether a tree closes its view. */
export declare function isEmptyView(tree: Json): boolean;

/** Return the first error of a tree and its JSON path; null if the tree is valid. */
export declare function validateView(tree: Json): { message: string; path: string } | null;
