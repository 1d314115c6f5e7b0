/**
 * Updates the elements of a block when its HTML changes, from the first difference on. Elements before it stay, and
 * with them the person's selection and the browser's layout.
 *
 * Only for HTML of `streaming.js`, in which all but a few tags are closed.
 */

const VOID_TAGS = new Set(["br", "hr", "img"]);
const TEXT_NODE = 3;

export const EMPTY_BLOCK = { whole: "", around: [], kept: [0], from: 0 };

/**
 * Compare a block's HTML with `known`, the result for its earlier HTML. Return `html` from the first difference on,
 * with the open tags `around` it, and how many elements are `kept` at each level down to there.
 */
export function diffHtml(known, whole) {
  const start = whole.startsWith(known.whole.slice(0, known.from)) ? known : EMPTY_BLOCK;
  const around = [...start.around];
  const kept = [...start.kept];
  let same = start.from;
  while (same < whole.length && known.whole[same] === whole[same]) same += 1;
  let { from } = start;
  for (const { 0: tag, 1: end, 2: name, index } of whole.slice(start.from, same).matchAll(/<(\/?)(\w+)[^>]*>/g)) {
    from = start.from + index + tag.length;
    if (end) {
      around.pop();
      kept.pop();
      continue;
    }
    kept[kept.length - 1] += 1;
    if (VOID_TAGS.has(name)) continue;
    around.push(tag);
    kept.push(0);
  }
  return { whole, around, kept, from, html: around.join("") + whole.slice(from) };
}

/** Replace the nodes behind the kept ones. Return false, and change nothing, if the kept elements are missing. */
export function patchElement(shown, fresh, [count, ...deeper]) {
  const last = shown.children[count - 1];
  const first = fresh.firstElementChild;
  if (count && !last) return false;
  if (deeper.length) {
    if (last.tagName !== first?.tagName || !patchElement(last, first, deeper)) return false;
    first.remove();
  }
  let stays = last ?? null;
  const old = last ? last.nextSibling : shown.firstChild;
  const text = fresh.firstChild;
  if (old?.nodeType === TEXT_NODE && text?.nodeType === TEXT_NODE && text.data.startsWith(old.data)) {
    old.appendData(text.data.slice(old.length));
    text.remove();
    stays = old;
  }
  while (shown.lastChild !== stays) shown.lastChild.remove();
  shown.append(...fresh.childNodes);
  return true;
}
