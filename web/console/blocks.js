/**
 * Markdown that is still being written, as HTML of its top-level blocks.
 *
 * While a text grows only its end is read again; blocks before it keep their HTML. What is shown of a text is a
 * function of the text and of whether it is open, not of the pieces it came in. Link definitions may stand
 * anywhere, so they count when the text is complete. Markup in the text stays text. The HTML is not yet safe
 * to show: `markdown.js` is the only one who does, and cleans it.
 */

import { Lexer, Parser, Renderer, Tokenizer, getDefaults } from "marked";

import { imageOf, linkOf, placeOf } from "./links.js";

const UNSURE = 2; // blocks at the end that more text may change: the last one, and where it began
const HIGHEST = 2; // the level of the page's heading that the text stands under
const LOWEST = 6;

class NoMarkup extends Tokenizer {
  html() {}
  tag() {}
}

class Writer extends Renderer {
  outline = []; // the depths of the headings that the next one may stand under

  /** One level below what it stands under: no level is left out, whatever the text does. */
  heading({ tokens, depth }) {
    this.outline = [...this.outline.filter((above) => above < depth), depth];
    const level = Math.min(HIGHEST + this.outline.length, LOWEST);
    return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`;
  }

  code({ text, lang }) {
    const language = /^[\w+#.-]{1,20}/.exec(lang ?? "")?.[0] ?? "";
    return `<figure><figcaption>${language}</figcaption><pre><code>${escaped(text)}\n</code></pre></figure>\n`;
  }

  checkbox({ checked }) {
    return checked ? "\u2611 " : "\u2610 ";
  }

  link({ href, title, text, tokens, autolink }) {
    const link = linkOf(href);
    const words = autolink ? escaped(text) : this.parser.parseInline(tokens, this.#words(tokens));
    return link === null ? words : anchor(link, words, title);
  }

  /** Inside a link a picture is its words: a link cannot hold another one. */
  #words(tokens) {
    return tokens.some(({ type }) => type === "image") ? this.parser.textRenderer : undefined;
  }

  /** What would be loaded from elsewhere tells elsewhere that somebody reads: it is a link. */
  image({ href, text }) {
    const [image, link] = [imageOf(href), linkOf(href)];
    if (image !== null) return `<img src="${escaped(image)}" alt="${escaped(text)}">`;
    if (link === null) return escaped(text);
    return anchor(link, `Image: ${escaped(text || "no description")} (${escaped(placeOf(link))})`);
  }
}

export class Blocks {
  html = []; // one string for each block
  #text = "";
  #tail = ""; // what is read again, with \n for every line end
  #sure = 0; // blocks before the tail
  #outline = []; // where the tail stands
  #defines = false;

  /** Take the text as it is now; what it says is in `html`. One that is open has only grown. */
  update(text, { open = false } = {}) {
    if (!open && !text.startsWith(this.#text)) this.#forget();
    this.#tail += lines(text.slice(this.#text.length), this.#text.endsWith("\r"));
    this.#text = text;
    const again = !open && this.#defines;
    if (again) {
      this.#forget();
      this.#tail = lines(text);
      this.#text = text;
    }
    this.#read(open);
  }

  #forget() {
    Object.assign(this, { html: [] });
    [this.#text, this.#tail, this.#sure, this.#outline, this.#defines] = ["", "", 0, [], false];
  }

  #read(open) {
    const { tokens, defines } = lexed(this.#tail, open);
    this.#defines ||= defines;
    const writer = new Writer();
    const parser = new Parser({ ...getDefaults(), renderer: writer });
    writer.outline = this.#outline;
    this.html.length = this.#sure;
    const sure = settled(tokens, this.#tail);
    tokens.forEach((token, at) => {
      if (token.type !== "space" && token.type !== "def") this.html.push(parser.parse([token]));
      if (at + 1 !== sure) return;
      this.#sure = this.html.length;
      this.#outline = writer.outline;
    });
    this.#tail = this.#tail.slice(lengthOf(tokens.slice(0, sure)));
  }
}

/** All HTML of a text that is complete. */
export function htmlOf(text) {
  const blocks = new Blocks();
  blocks.update(text);
  return blocks.html.join("");
}

/** The tokens of a text; while it is open no reference is resolved. */
function lexed(source, open) {
  const lexer = new Lexer({ ...getDefaults(), tokenizer: new NoMarkup() });
  const tokens = lexer.blockTokens(source, lexer.tokens);
  const defines = Object.keys(tokens.links).length > 0;
  if (open) tokens.links = Object.create(null);
  for (const { src, tokens: into } of lexer.inlineQueue) lexer.inlineTokens(src, into);
  return { tokens, defines };
}

const lengthOf = (tokens) => tokens.reduce((sum, { raw }) => sum + raw.length, 0);

const ENDS = new Set(["space", "heading", "hr", "code"]); // behind others a line may still join them

/** How many tokens at the beginning stay as they are, whatever comes. */
function settled(tokens, source) {
  let left = UNSURE;
  let count = tokens.length;
  while (count > 0 && left > 0) {
    count -= 1;
    if (tokens[count].type !== "space") left -= 1;
  }
  if (left > 0) return 0;
  while (count > 0 && !ENDS.has(tokens[count - 1].type)) count -= 1;
  const raw = tokens.slice(0, count).map((token) => token.raw).join("");
  return source.startsWith(raw) ? count : 0;
}

/** A piece with one kind of line end; `split` says that the piece before ended within one. */
const lines = (piece, split = false) => (split ? piece.replace(/^\n/, "") : piece).replace(/\r\n?/g, "\n");

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
export const escaped = (text) => text.replace(/[&<>"']/g, (character) => ENTITIES[character]);

const anchor = (link, words, title) =>
  `<a href="${escaped(link)}"${title ? ` title="${escaped(title)}"` : ""}>${words}</a>`;
