/**
 * Renders markdown that is still streaming, to one HTML string per top-level block.
 *
 * While a text grows only its end is parsed again: earlier blocks keep their HTML, and so does the stable part of the
 * last block (`stable-prefix.js`). The HTML depends on the text and on `open`, not on the pieces it came in. Link
 * definitions may stand anywhere, so they count when the text is complete. So do formulas, which become `<var>`. HTML in the text stays text, except `<br>`
 * and a few pairs of tags without attributes (`TAG_PAIR`). The result is not safe to show: only `render.js` uses it,
 * and sanitizes it.
 */

import { Parser, Renderer, getDefaults } from "marked";

import { BoundedLexer, BoundedTokenizer } from "./bounded-marked.js";
import { matchBlockFormula, matchInlineFormula, mayHaveFormula } from "./formulas.js";
import { splitBlock, stableTokenCount, tokensLength } from "./stable-prefix.js";
import { allowedImage, allowedLink, linkHost } from "./url-policy.js";

const PAGE_LEVEL = 2; // of the page's heading above the text
const MAX_LEVEL = 6;

const TAG_PAIR = /^<(kbd|sub|sup|mark)>([^<>\n]*)<\/\1>/i;
const LINE_BREAK = /^<br ?\/?>/i;

class PlainTokenizer extends BoundedTokenizer {
  html() {}

  tag(source) {
    const [raw, name, words] = TAG_PAIR.exec(source) ?? [];
    if (raw) {
      const tag = name.toLowerCase();
      return { type: "html", raw, text: `<${tag}>${escapeHtml(words)}</${tag}>` };
    }
    const [line] = LINE_BREAK.exec(source) ?? [];
    return line ? { type: "br", raw: line } : undefined;
  }

  /** Marked throws on some quotes with lists: their lines become a paragraph. */
  blockquote(source) {
    try {
      return super.blockquote(source);
    } catch {
      return undefined;
    }
  }
}

/** Also reads formulas. Only for complete texts: half a formula is markdown. */
class FormulaTokenizer extends PlainTokenizer {
  fences(source) {
    const found = matchBlockFormula(source);
    if (!found) return super.fences(source);
    return { type: "html", block: true, raw: found.raw, text: `<p>${formulaHtml(found.formula)}</p>\n` };
  }

  escape(source) {
    const raw = matchInlineFormula(source);
    return raw ? { type: "html", raw, text: formulaHtml(raw) } : super.escape(source);
  }

  /** A text ends where a formula may begin. */
  inlineText(source) {
    const end = source.indexOf("$", 1);
    return super.inlineText(end < 0 ? source : source.slice(0, end));
  }
}

const formulaHtml = (formula) => `<var>${escapeHtml(formula)}</var>`;

class HtmlRenderer extends Renderer {
  outline = []; // the depths of the headings above the next one

  /** Return the HTML of each token, and the outline before each. */
  renderTokens(tokens, outline) {
    const parser = new Parser({ ...getDefaults(), renderer: this });
    const outlines = [];
    this.outline = outline;
    const html = tokens.map((token) => {
      outlines.push(this.outline);
      return parser.parse([token]);
    });
    return { html, outlines };
  }

  /** A heading is one level below the heading above it, so that no level is skipped. */
  heading({ tokens, depth }) {
    this.outline = [...this.outline.filter((above) => above < depth), depth];
    const level = Math.min(PAGE_LEVEL + this.outline.length, MAX_LEVEL);
    return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`;
  }

  code({ text, lang }) {
    const language = /^[\w+#.-]{1,20}/.exec(lang ?? "")?.[0] ?? "";
    const lines = language === "diff" ? text.split("\n").map(diffLine).join("\n") : escapeHtml(text);
    return `<figure><figcaption>${language}</figcaption><pre><code>${lines}\n</code></pre></figure>\n`;
  }

  /** A task box is a character: a checkbox would look as if it could be ticked. */
  listitem({ tokens }) {
    const html = this.parser
      .parse(tokens)
      .replace(
        /^(<p>)?\[([ xX])\][ \t]+(?=\S)/,
        (_, before = "", mark) => before + (mark === " " ? "\u2610 " : "\u2611 "),
      );
    return `<li>${html}</li>\n`;
  }

  /** A table stands in a box that scrolls. */
  table(token) {
    return `<div>${super.table(token)}</div>\n`;
  }

  link({ href, title, text, tokens, autolink }) {
    const link = allowedLink(href);
    const words = autolink ? escapeHtml(text) : this.parser.parseInline(tokens, this.#linkRenderer(tokens));
    return link === null ? words : anchor(link, words, title);
  }

  /** Inside a link an image is its text: a link cannot hold a link. */
  #linkRenderer(tokens) {
    return tokens.some(({ type }) => type === "image") ? this.parser.textRenderer : undefined;
  }

  /** An image of another server is a link: loading it would tell that server who reads. */
  image({ href, text }) {
    const image = allowedImage(href);
    const link = allowedLink(href);
    if (image !== null) return `<img src="${escapeHtml(image)}" alt="${escapeHtml(text)}">`;
    if (link === null) return escapeHtml(text);
    return anchor(link, `Image: ${escapeHtml(text || "no description")} (${escapeHtml(linkHost(link))})`);
  }
}

const NO_SPLIT = { head: "", lead: "", at: 0, html: "" };

export class StreamingMarkdown {
  html = []; // one string for each block
  #renderer = new HtmlRenderer();
  #text = "";
  #tail = ""; // the text after the stable blocks, with \n for every line end
  #stableBlocks = 0; // blocks before the tail
  #outline = []; // where the tail stands
  // where to parse the tail from: the `html` before, the `head` to put before it, the `lead` that the head renders to
  #split = NO_SPLIT;
  #hasDefinitions = false;

  /** Parse the current text into `html`. While `open`, a text may only grow. */
  update(text, { open = false } = {}) {
    if (!open && !text.startsWith(this.#text)) this.#reset();
    this.#tail += normalizeLineEnds(text.slice(this.#text.length), this.#text.endsWith("\r"));
    this.#text = text;
    if (!open && (this.#hasDefinitions || mayHaveFormula(text))) {
      this.#reset();
      this.#tail = normalizeLineEnds(text);
      this.#text = text;
    }
    this.#parse(open);
  }

  #reset() {
    this.html = [];
    this.#text = "";
    this.#tail = "";
    this.#stableBlocks = 0;
    this.#outline = [];
    this.#split = NO_SPLIT;
    this.#hasDefinitions = false;
  }

  #parse(open) {
    const { head, lead, at, html, outline = this.#outline } = this.#split;
    const source = head + this.#tail.slice(at);
    const { tokens, defines } = lex(source, open);
    this.#hasDefinitions ||= defines;
    const { html: rendered, outlines } = this.#renderer.renderTokens(tokens, outline);
    if (head && !rendered[0].startsWith(lead)) {
      this.#split = NO_SPLIT; // new text made it another kind of block
      return this.#parse(open);
    }
    if (head) rendered[0] = html + rendered[0].slice(lead.length);
    this.html.length = this.#stableBlocks;
    for (const one of rendered) if (one) this.html.push(one); // push(...) of so many would overflow the stack
    if (!open) return;
    const sure = stableTokenCount(tokens, source);
    if (sure) {
      this.#stableBlocks += rendered.slice(0, sure).filter(Boolean).length;
      this.#tail = source.slice(tokensLength(tokens.slice(0, sure)));
      this.#outline = outlines[sure];
      this.#split = NO_SPLIT;
    }
    this.#splitTail(tokens[sure], outlines[sure]);
  }

  /** Move the split of the tail's first block forward as far as possible. */
  #splitTail(token, outline) {
    const found = splitBlock(token, lexOpen);
    const known = this.#split;
    if (!(found?.at > known.head.length)) return;
    const { part, head, close } = found;
    const before = (one) => this.#renderer.renderTokens([one], outline).html[0].slice(0, -close.length);
    const lead = before(lexOpen(head)[0]);
    const html = known.html + before(part).slice(known.lead.length);
    this.#split = { head, lead, at: known.at + found.at - known.head.length, html, outline: this.#renderer.outline };
  }
}

/** Lex a text. While it is open no reference is resolved. */
function lex(source, open) {
  const tokenizer = !open && mayHaveFormula(source) ? new FormulaTokenizer() : new PlainTokenizer();
  const lexer = new BoundedLexer({ ...getDefaults(), tokenizer });
  lexer.options.gfm = false; // the rules are already chosen; the option would only search the whole text for task boxes
  const tokens = lexer.blockTokens(source, lexer.tokens);
  const defines = Object.keys(tokens.links).length > 0;
  if (open) tokens.links = Object.create(null);
  lexer.readPieces();
  return { tokens, defines };
}

const lexOpen = (source) => lex(source, true).tokens;

/** Return a piece with \n for every line end. `split`: the piece before ended with \r. */
const normalizeLineEnds = (piece, split = false) => (split ? piece.replace(/^\n/, "") : piece).replace(/\r\n?/g, "\n");

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escapeHtml = (text) => text.replace(/[&<>"']/g, (character) => ENTITIES[character]);

/** Mark a line of a diff as inserted or deleted. */
function diffLine(line) {
  const tag = /^\+(?!\+\+ )/.test(line) ? "ins" : /^-(?!-- )/.test(line) ? "del" : null;
  return tag ? `<${tag}>${escapeHtml(line)}</${tag}>` : escapeHtml(line);
}

const anchor = (link, words, title) =>
  `<a href="${escapeHtml(link)}"${title ? ` title="${escapeHtml(title)}"` : ""}>${words}</a>`;
