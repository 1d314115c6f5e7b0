/** The typed tree of a view. */

import type { View } from "../events.js";
import { isEmptyView, validateView } from "./schema.js";
import type { ViewNode } from "./view-nodes.js";
import { NODES_KIND } from "./views.js";

/** Return the tree of a view to draw; null for a view of another kind, one that is closed, and one that is not valid. */
export function readViewNode({ kind, tree }: Pick<View, "kind" | "tree">): ViewNode | null {
  const isShown = kind === NODES_KIND && !isEmptyView(tree) && validateView(tree) === null;
  return isShown ? (tree as unknown as ViewNode) : null;
}
