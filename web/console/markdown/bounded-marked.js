/**
 * Marked with bounds: reading a text takes time in proportion to its length, whatever the text is.
 *
 * Marked looks for the end of each delimiter in all that follows, so a text of delimiters that nothing closes takes it
 * a square. Here each piece of running text has a budget of characters that may be looked at in vain; what is left
 * when the budget is spent stays plain text. A rule that looks ahead at every character is given a short piece, and
 * lists and quotes nest to `MAX_DEPTH`. What is shown is a function of the text: no bound is one of time.
 */

import { Lexer, Tokenizer } from "marked";

const MAX_PIECE_CHARS = 32 * 1024; // of running text in one block, without pictures; a longer one stays plain
const MAX_LOOKS = 64; // at each character, on average: a paragraph of prose needs about one
const FREE_LOOKS = 16 * 1024; // for short pieces, of which even a square is little
const MAX_DEPTH = 24; // of lists and quotes in each other
const MAX_TEXT_CHARS = 256; // for the rule that looks for an address behind every character
const MAX_ADDRESS_CHARS = 320; // of a mail address: 64, an @ and 255
const MAX_URL_CHARS = 2048;
const MAX_HEADING_CHARS = 512; // above a line of = or -
const MAX_ITEM_CHARS = 4096; // of lines that marked joins one by one; then the rest is joined at once

const URL_START = /^(?:https?|ftp|www|mailto|xmpp)\b/i;
const EMPHASIS_RUN = /^(?:\*+|_+)/; // of what emphasis begins with
const PICTURES = /\(data:image\/[^\s()]*\)/g; // one can be longer than all words around it
const WORDS = /^[^]*\S(?=\s)/; // up to the last space

export class BoundedLexer extends Lexer {
  /** Read a piece of running text, or what is inside emphasis or a link in it. */
  inlineTokens(source, tokens = []) {
    if (!this.tokenizer.spend(source.length)) return addPlainText(source, tokens);
    return super.inlineTokens(source, tokens);
  }

  /** Read all pieces of running text that blocks hold. */
  readPieces() {
    for (const { src, tokens } of this.inlineQueue) {
      this.tokenizer.refill(src);
      this.inlineTokens(src, tokens);
    }
  }
}

export class BoundedTokenizer extends Tokenizer {
  #looks = 0; // how many characters may still be looked at
  #depth = 0;

  /** Begin with another piece: it has a budget of its own. */
  refill(source) {
    const isLong = source.length > MAX_PIECE_CHARS && source.replace(PICTURES, "").length > MAX_PIECE_CHARS;
    this.#looks = isLong ? 0 : FREE_LOOKS + MAX_LOOKS * source.length;
  }

  /** Whether so many characters may still be looked at. */
  spend(chars) {
    this.#looks -= chars;
    return this.#looks > 0;
  }

  list(source) {
    return this.#nested(() => super.list(source));
  }

  blockquote(source) {
    return this.#nested(() => super.blockquote(source));
  }

  #nested(read) {
    if (this.#depth === MAX_DEPTH) return undefined;
    this.#depth += 1;
    try {
      return read();
    } finally {
      this.#depth -= 1;
    }
  }

  lheading(source) {
    if (source.length <= MAX_HEADING_CHARS) return super.lheading(source);
    const end = source.lastIndexOf("\n", MAX_HEADING_CHARS) + 1;
    return end ? super.lheading(source.slice(0, end)) : undefined;
  }

  def(source) {
    return this.#isLongItem ? undefined : super.def(source);
  }

  text(source) {
    if (!this.#isLongItem) return super.text(source);
    return { type: "text", raw: source, text: source, tokens: this.lexer.inline(source) };
  }

  get #isLongItem() {
    const { type, raw } = this.lexer.state.lastToken ?? {};
    return type === "text" && raw.length > MAX_ITEM_CHARS;
  }

  emStrong(source, masked, before) {
    const [run] = EMPHASIS_RUN.exec(source) ?? [];
    if (!run) return undefined;
    this.#looks -= run.length;
    const isInWord = run[0] === "_" && /\w/.test(before);
    const isOpening = !isInWord && /\S/.test(source[run.length] ?? "");
    return this.#look(isOpening, source, () => super.emStrong(source, masked, before));
  }

  del(source, masked, before) {
    return this.#look(source[0] === "~", source, () => super.del(source, masked, before));
  }

  codespan(source) {
    return this.#look(source[0] === "`", source, () => super.codespan(source));
  }

  link(source) {
    return this.#look(/^!?\[/.test(source), source, () => super.link(source));
  }

  reflink(source, links) {
    return this.#look(/^!?\[/.test(source), source, () => super.reflink(source, links));
  }

  /** Try a rule; one that finds nothing may have looked at all there is. */
  #look(isTried, source, read) {
    if (!isTried || this.#looks <= 0) return undefined;
    const token = read();
    this.#looks -= token ? 1 : source.length;
    return token;
  }

  url(source) {
    return super.url(source.slice(0, URL_START.test(source) ? MAX_URL_CHARS : MAX_ADDRESS_CHARS));
  }

  inlineText(source) {
    if (this.#looks <= 0) return { type: "text", raw: source, text: source };
    const piece = source.slice(0, MAX_TEXT_CHARS);
    return super.inlineText(piece === source ? piece : (WORDS.exec(piece)?.[0] ?? piece));
  }
}

function addPlainText(text, tokens) {
  tokens.push({ type: "text", raw: text, text });
  return tokens;
}
