/**
 * Finds the part of streaming markdown that no later text can change.
 *
 * `stableTokenCount` counts whole blocks; `splitBlock` splits inside a block and returns what to put before the rest
 * so that it parses as more of the same block. Neither guesses: where later text may matter there is no split. So a
 * paragraph is parsed again from an unclosed emphasis, code span or link on, and a list from its last item on.
 */

// Blocks that no later line can join or change.
const CLOSED_BLOCKS = { space: /\n.*\n|^\n/, heading: /./, hr: /./, code: /^ {0,3}[`~]/ };
// Blocks that close the block before them, once they have so many lines; fewer may become something else.
const SEPARATE_BLOCKS = { list: /^ *\S+ .*\n.*\n/, blockquote: /\n.*\n/, code: /\n.*\n/, table: /^.*\n.*\|.*\n/ };
const LIST_MARKERS = /^[\s\d*+.)_-]*$/; // may become an item of the list before
const OPEN_INLINE = /[*~](?!\s)|(?<!\w)_(?!\s)|\[(?![^[\]\\`<]*\][^([:])|<(?! |(?!(?:kbd|sub|sup|mark)>)\/?\w+>)|`/i; // later text may close it
const SPECIAL = /[*_~`[<]/;

export const tokensLength = (tokens) => tokens.reduce((sum, { raw }) => sum + raw.length, 0);
const tokensText = (tokens) => tokens.map(({ raw }) => raw).join("");

/** Return how many leading tokens no later text can change. */
export function stableTokenCount(tokens, source) {
  let count = tokens.length;
  const back = () => {
    do count -= 1;
    while (count > 0 && tokens[count].type === "space");
  };
  if (count) back();
  if (count && LIST_MARKERS.test(tokens[count].raw)) back();
  while (count && !areSeparate(tokens[count - 1], tokens[count])) count -= 1;
  return source.startsWith(tokensText(tokens.slice(0, count))) ? count : 0;
}

/**
 * Whether no later line can join two blocks or move between them. A block that opens a bracket may become a definition.
 */
const areSeparate = (one, next) =>
  CLOSED_BLOCKS[one.type]?.test(one.raw) ||
  (SEPARATE_BLOCKS[next.type]?.test(next.raw.trimEnd()) && one.type !== "def" && !/^ *\[/.test(one.raw));

/**
 * Split a block; undefined if it cannot be split. `part` is the token of its beginning, `at` where that ends in the
 * source, `head` what to put before the rest, `close` the HTML that closes the part. `read` lexes a text.
 */
export const splitBlock = (token, read) => SPLITTERS[token?.type]?.(token, read);

const SPLITTERS = {
  list(token, read) {
    const { items, loose } = token;
    const part = items.slice(0, -2);
    if (!part.length) return;
    // one loose item makes all loose, but the last may turn out to be no item
    if (loose && !read(tokensText(items.slice(0, -1)))[0].loose) return;
    const item = `${/^ *\S+/.exec(items.at(-2).raw)} a\n`;
    const head = loose ? `${item}\n${item}` : item;
    return { part: { ...token, items: part }, at: tokensLength(part), head, close: "</ul>\n" };
  },

  table(token) {
    const part = token.rows.slice(0, -2);
    if (!part.length) return;
    const head = `${firstLines(token.raw, 2)}\na\n`;
    const at = firstLines(token.raw, part.length + 2).length + 1;
    return { part: { ...token, rows: part }, at, head, close: "</tbody></table>\n</div>\n" };
  },

  code(token) {
    const part = token.text.split("\n").slice(0, -2);
    if (!part.length) return;
    const isFenced = !token.codeBlockStyle;
    const at = firstLines(token.raw, part.length + isFenced).length;
    const head = isFenced ? `${firstLines(token.raw, 1)}\na` : "    a";
    return { part: { ...token, text: part.join("\n") }, at, head, close: "</code></pre></figure>\n" };
  },

  /** Split among the inner blocks. A line without a mark continues an inner block: then there is no split. */
  blockquote(token, read) {
    const { tokens, text, raw } = token;
    if (/^(?! {0,3}>)./m.test(raw)) return;
    const part = tokens.slice(0, stableTokenCount(tokens, text));
    const inner = part.length ? { part, at: tokensLength(part), head: "", close: "" } : splitBlock(tokens[0], read);
    if (!inner) return;
    const count = text.slice(0, inner.at).split("\n").length;
    const end = firstLines(text, count).length;
    const at = firstLines(raw, count).length - (end - inner.at);
    if (raw.slice(at).split("\n", 1)[0] !== text.slice(inner.at, end)) return;
    return {
      part: { ...token, tokens: [inner.part].flat() },
      at,
      head: inner.head.replace(/^/gm, "> "),
      close: `${inner.close}</blockquote>\n`,
    };
  },

  /** Split between two words where nothing is open. */
  paragraph({ raw, tokens }, read) {
    let [at, from] = [0, 0];
    for (const token of tokens) {
      const isText = token.type === "text";
      const [sure] = isText ? token.raw.split(OPEN_INLINE, 1) : [""];
      const [words] = /^[^]*\S (?=\S)/.exec(sure) ?? [""];
      if (words) at = from + words.length;
      if (isText ? sure !== token.raw : !isClear(token)) break;
      from += token.raw.length;
    }
    const source = raw.slice(0, at);
    if (!at || !tokensText(tokens).startsWith(source)) return;
    const [part] = read(source); // the beginning of a line may parse differently than the line
    if (part.type === "paragraph" && part.raw === source) return { part, at, head: "a\na ", close: "</p>\n" };
  },
};

/** Whether a token has no delimiter that later text may close. */
const isClear = ({ type, tokens, raw, autolink }) =>
  autolink || (tokens ? tokens.every(isClear) : type !== "text" || !SPECIAL.test(raw));

const firstLines = (text, count) => text.split("\n", count).join("\n");
