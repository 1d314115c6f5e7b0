/**
 * What changes in elements when the HTML of a block does: what is behind the place where the HTML parts from what it
 * was. Elements before it stay, so a person's selection and the browser's work do, and are not made again.
 *
 * For HTML as `blocks.js` writes it, in which all but a few tags are closed.
 */

const VOID_TAGS = new Set(["br", "hr", "img"]);
const TEXT_NODE = 3;

export const EMPTY_BLOCK = { whole: "", around: [], kept: [0], from: 0 };

/**
 * What is new in the HTML of a block: `html` from where it parts, with the tags that are open `around` it, and how many
 * elements are `kept` at each level down to there. `known` is what was said of the HTML before.
 */
export function diffHtml(known, whole) {
  const start = whole.startsWith(known.whole.slice(0, known.from)) ? known : EMPTY_BLOCK;
  const [around, kept] = [[...start.around], [...start.kept]];
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

/** Put new nodes behind those that stay; false, and nothing is done, where there are not the elements to do so. */
export function patchElement(shown, fresh, [count, ...deeper]) {
  const last = shown.children[count - 1];
  const first = fresh.firstElementChild;
  if (count && !last) return false;
  if (deeper.length) {
    if (last.tagName !== first?.tagName || !patchElement(last, first, deeper)) return false;
    first.remove();
  }
  let stays = last ?? null;
  const [old, text] = [last ? last.nextSibling : shown.firstChild, fresh.firstChild];
  if (old?.nodeType === TEXT_NODE && text?.nodeType === TEXT_NODE && text.data.startsWith(old.data)) {
    old.appendData(text.data.slice(old.length));
    text.remove();
    stays = old;
  }
  while (shown.lastChild !== stays) shown.lastChild.remove();
  shown.append(...fresh.childNodes);
  return true;
}
