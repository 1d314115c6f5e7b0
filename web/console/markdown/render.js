/**
 * The only module that turns text into elements. `streaming.js` renders markdown to HTML; here DOMPurify passes the
 * listed tags and attributes only, and links and images are checked against `url-policy.js` once more.
 *
 * Blocks that did not change keep their elements, and with them the person's selection.
 */

import DOMPurify from "dompurify";

import { copyText, hasClipboard } from "../ui/clipboard.js";
import { EMPTY_BLOCK, diffHtml, patchElement } from "./dom-patch.js";
import { drawLazyParts, hasLazyParts } from "./lazy-parts.js";
import { StreamingMarkdown } from "./streaming.js";
import { allowedImage, allowedLink } from "./url-policy.js";

const MAX_CHARS = 256 * 1024; // a longer text is shown as plain text
const MAX_REDRAW_CHARS = 8 * 1024; // of HTML drawn again in one update: more would block the page
const COPIED_MS = 1500;
const TASK_BOX = /^[\u2610\u2611] /; // the box of a task, as `streaming.js` renders it
const SANITIZER_CONFIG = {
  ALLOWED_TAGS: [
    "a",
    "blockquote",
    "br",
    "code",
    "del",
    "div",
    "em",
    "figcaption",
    "figure",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "img",
    "ins",
    "kbd",
    "li",
    "mark",
    "ol",
    "p",
    "pre",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
    "var",
    "#text",
  ],
  ALLOWED_ATTR: ["align", "alt", "href", "src", "start", "title"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
DOMPurify.setConfig(SANITIZER_CONFIG); // once: parsing the configuration takes as long as a block

export const COPY_LABELS = { copy: "Copy", copied: "Copied" };

const sanitize = (html) => DOMPurify.sanitize(html);

/** Shows a markdown text in an element while it grows. */
export class MarkdownView {
  #element;
  #labels; // of the buttons that copy code
  #imageAddress; // for a page that is not at the server's root
  #markdown = new StreamingMarkdown();
  #completeText = null; // the text, once it is complete and parsed
  #shownBlocks = []; // by child of the element: the last result of `diffHtml`

  /** `imageAddress` returns a promise of the address that the page loads for an image; by default the image's own. */
  constructor(element, labels = COPY_LABELS, imageAddress = null) {
    this.#element = element;
    this.#labels = labels;
    this.#imageAddress = imageAddress;
  }

  /** Update the element; return whether all of the text is shown. If not, the same call continues. */
  update(text, { open = false } = {}) {
    if (text.length > MAX_CHARS) return this.#showPlain(text);
    if (open || this.#completeText !== text) this.#markdown.update(text, { open });
    this.#completeText = open ? null : text;
    const { html } = this.#markdown;
    if (!this.#shownBlocks.length) this.#element.replaceChildren();
    const { children } = this.#element;
    while (children.length > html.length) this.#element.lastChild.remove();
    while (children.length < html.length) this.#element.append(createElement("div", "block"));
    this.#shownBlocks.length = html.length;
    const changed = [...html.keys()].filter((at) => html[at] !== this.#shownBlocks[at]?.whole);
    let again = 0;
    const now = changed.filter(
      (at) => !this.#shownBlocks[at] || (again < MAX_REDRAW_CHARS && (again += html[at].length)),
    );
    const partings = now.map((at) => diffHtml(this.#shownBlocks[at] ?? EMPTY_BLOCK, html[at]));
    const fresh = this.#sanitizeBlocks(partings.map((one) => one.html));
    for (const [number, at] of now.entries()) {
      const one = partings[number];
      if (!patchElement(children[at], fresh[number], one.kept))
        patchElement(children[at], this.#sanitizeBlocks([one.whole])[0], [0]);
      markTasks(children[at]);
      this.#shownBlocks[at] = one;
    }
    const isDone = now.length === changed.length;
    if (isDone && !open) this.#drawLazyParts();
    return isDone;
  }

  /** Draw the code and formulas of a complete text, once. */
  #drawLazyParts() {
    const { children } = this.#element;
    const lazyBlocks = [];
    for (const [at, shown] of this.#shownBlocks.entries()) {
      if (shown.isFinished) continue;
      const isLazy = hasLazyParts(children[at]);
      // these elements are no longer those of the HTML: if the text changes after all, the block is drawn as a whole
      this.#shownBlocks[at] = { ...(isLazy ? EMPTY_BLOCK : shown), whole: shown.whole, isFinished: true };
      if (isLazy) lazyBlocks.push(children[at]);
    }
    drawAll(lazyBlocks);
  }

  /** Return one sanitized element per block of HTML. */
  #sanitizeBlocks(blocks) {
    const found = [...sanitize(blocks.map((html) => `<div>${html}</div>`).join("")).children];
    const whole = found.length === blocks.length; // in one call, because each call builds a document
    const elements = whole ? found : blocks.map((html) => wrapInDiv(sanitize(html)));
    for (const element of elements) decorateBlock(element, this.#labels, this.#imageAddress);
    return elements;
  }

  #showPlain(text) {
    this.#shownBlocks = [];
    const [node] = this.#element.childNodes;
    if (node?.nodeType === Node.TEXT_NODE && text.startsWith(node.data)) node.appendData(text.slice(node.length));
    else this.#element.replaceChildren(text);
    return true;
  }
}

async function drawAll(blocks) {
  for (const block of blocks) await drawLazyParts(block);
}

/** Return an element with a complete text. */
export function renderMarkdown(text) {
  const element = createElement("div", "prose");
  new MarkdownView(element).update(text);
  return element;
}

function wrapInDiv(fragment) {
  const element = createElement("div", "");
  element.append(fragment);
  return element;
}

/** Check links and images against the URL policy, and add what the page adds: copy buttons, scrolling. */
function decorateBlock(block, labels, imageAddress) {
  for (const link of block.querySelectorAll("a")) secureLink(link);
  for (const image of block.querySelectorAll("img")) secureImage(image, imageAddress);
  for (const code of block.querySelectorAll("pre")) addCopyButton(code, labels);
  for (const written of block.querySelectorAll("ul, ol, table, blockquote")) written.dir = "auto"; // bullets, columns
  for (const { parentElement: around } of block.querySelectorAll("table")) {
    around.className = "scroll";
    around.tabIndex = 0; // it scrolls too
  }
}

/** Mark the items that are tasks. An item that was drawn when its box had not come yet stays the same element. */
function markTasks(block) {
  for (const item of block.querySelectorAll("li")) if (TASK_BOX.test(item.textContent)) item.className = "task";
}

/** Remove an image that is not allowed; give any other the address that the page loads. */
function secureImage(image, imageAddress) {
  const address = allowedImage(image.getAttribute("src"));
  if (address === null) return image.remove();
  if (imageAddress === null) return undefined;
  image.removeAttribute("src");
  const show = (own) => image.setAttribute("src", own);
  return imageAddress(address).then(show, () => null); // what cannot be loaded is its text
}

/** Let a link open a tab without a referrer; unwrap a link that is not allowed. */
function secureLink(link) {
  const address = allowedLink(link.getAttribute("href"));
  if (address === null) return link.replaceWith(...link.childNodes);
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
}

function addCopyButton(code, labels) {
  code.tabIndex = 0; // it scrolls: keys must reach it
  if (!hasClipboard()) return;
  const button = createElement("button", "plain");
  button.type = "button";
  button.textContent = labels.copy;
  button.addEventListener("click", async () => {
    await copyText(code.textContent);
    button.textContent = labels.copied;
    setTimeout(() => (button.textContent = labels.copy), COPIED_MS);
  });
  code.parentElement.querySelector("figcaption")?.append(button);
}

function createElement(tag, name) {
  const element = document.createElement(tag);
  element.className = name;
  return element;
}
