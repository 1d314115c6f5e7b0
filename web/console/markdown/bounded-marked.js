/**
 * Marked with bounds: parsing takes time in proportion to the length of the text, whatever the text is.
 *
 * Marked searches the end of each delimiter in all that follows, so a text of unclosed delimiters takes quadratic
 * time. Here each piece of inline text has a budget of characters that a failed search may read; the rest of a piece
 * that has used its budget stays plain text. A rule that looks ahead at every character gets a short piece, and lists
 * and quotes nest to `MAX_DEPTH`. The output depends on the text alone: no bound is one of time.
 */

import { Lexer, Tokenizer } from "marked";

const MAX_PIECE_CHARS = 32 * 1024; // of inline text in one block, without images; a longer one stays plain
const MAX_LOOKS = 64; // per character, on average: prose needs about one
const FREE_LOOKS = 16 * 1024; // for short pieces, where even quadratic work is little
const MAX_DEPTH = 24; // of nested lists and quotes
const MAX_TEXT_CHARS = 256; // for the rule that looks for a URL at every character
const MAX_ADDRESS_CHARS = 320; // of a mail address: 64, an @ and 255
const MAX_URL_CHARS = 2048;
const MAX_HEADING_CHARS = 512; // above a line of = or -
const MAX_ITEM_CHARS = 4096; // marked joins lines one by one; beyond this the rest is joined at once

const URL_START = /^(?:https?|ftp|www|mailto|xmpp)\b/i;
const EMPHASIS_RUN = /^(?:\*+|_+)/; // of what emphasis begins with
const PICTURES = /\(data:image\/[^\s()]*\)/g; // an image can be longer than all text around it
const WORDS = /^[^]*\S(?=\s)/; // up to the last space

export class BoundedLexer extends Lexer {
  /** Parse a piece of inline text, also inside emphasis or a link. */
  inlineTokens(source, tokens = []) {
    if (!this.tokenizer.spend(source.length)) return addPlainText(source, tokens);
    return super.inlineTokens(source, tokens);
  }

  /** Parse the inline text of all blocks. */
  readPieces() {
    for (const { src, tokens } of this.inlineQueue) {
      this.tokenizer.refill(src);
      this.inlineTokens(src, tokens);
    }
  }
}

export class BoundedTokenizer extends Tokenizer {
  #looks = 0; // the rest of the budget, in characters
  #depth = 0;

  /** Reset the budget for another piece. */
  refill(source) {
    const isLong = source.length > MAX_PIECE_CHARS && source.replace(PICTURES, "").length > MAX_PIECE_CHARS;
    this.#looks = isLong ? 0 : FREE_LOOKS + MAX_LOOKS * source.length;
  }

  /** Take characters from the budget; return whether some are left. */
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

  /** Try a rule. One that finds nothing may have read all of the source, and pays for it. */
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
