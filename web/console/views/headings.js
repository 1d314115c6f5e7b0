/** Heading levels of a view, so that no level is skipped. Pure. */

const DEEPEST = 6;
const TITLED_NODES = new Set(["screen", "section"]); // forms and tables have legends
const TEXT_LEVELS = new Map([
  ["heading", 1],
  ["subheading", 2],
]);

/** Return the heading level of each node. `above` is the level of the heading before the view. */
export function headingLevels(tree, above, title) {
  const levels = new Map();
  let last = above;
  const step = (node, wanted) => {
    last = Math.min(wanted, last + 1, DEEPEST);
    levels.set(node, last);
  };
  const walk = (node, around) => {
    const inner = node.title && TITLED_NODES.has(node.type) ? around + 1 : around;
    if (inner > around) step(node, inner);
    if (node.type === "text" && TEXT_LEVELS.has(node.style)) step(node, around + TEXT_LEVELS.get(node.style));
    for (const child of node.children ?? []) walk(child, inner);
  };
  if (title) step(null, above + 1);
  walk(tree, title ? above + 1 : above);
  return levels;
}
