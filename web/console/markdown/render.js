/**
 * The one place where text becomes markup. `blocks.js` writes HTML of markdown; here DOMPurify lets through what
 * is listed and nothing else, and what leads elsewhere is held to `links.js` once more.
 *
 * Blocks that did not change keep their elements, so a person's selection and the browser's work stay.
 */

import DOMPurify from "dompurify";

import { Blocks } from "./streaming.js";
import { imageOf, linkOf } from "./url-policy.js";
import { NOTHING, graft, parting } from "./dom-patch.js";

const MOST_CHARS = 256 * 1024; // of markdown; what is longer is shown as it is
const MOST_AGAIN = 8 * 1024; // of HTML that is made again at once: more would hold up the page
const COPIED_MS = 1500;
const BOX = /^[\u2610\u2611] /; // what `blocks.js` makes of the box of a task
const ALLOWED = {
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
    "#text",
  ],
  ALLOWED_ATTR: ["align", "alt", "href", "src", "start", "title"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
DOMPurify.setConfig(ALLOWED); // once: reading it takes as long as a block

const purified = (html) => DOMPurify.sanitize(html);

/** A text in an element: shows it, and goes on showing it while it grows. */
export class Prose {
  #element;
  #blocks = new Blocks();
  #complete = null; // the text, once it is complete and read
  #shown = []; // what `parting` said of each child of the element

  constructor(element) {
    this.#element = element;
  }

  /** Whether all of it is shown; if not, the same call once more goes on. */
  update(text, { open = false } = {}) {
    if (text.length > MOST_CHARS) return this.#plain(text);
    if (open || this.#complete !== text) this.#blocks.update(text, { open });
    this.#complete = open ? null : text;
    const { html } = this.#blocks;
    if (!this.#shown.length) this.#element.replaceChildren();
    const { children } = this.#element;
    while (children.length > html.length) this.#element.lastChild.remove();
    while (children.length < html.length) this.#element.append(made("div", "block"));
    this.#shown.length = html.length;
    const changed = [...html.keys()].filter((at) => html[at] !== this.#shown[at]?.whole);
    let again = 0;
    const now = changed.filter((at) => !this.#shown[at] || (again < MOST_AGAIN && (again += html[at].length)));
    const partings = now.map((at) => parting(this.#shown[at] ?? NOTHING, html[at]));
    const fresh = clean(partings.map((one) => one.html));
    for (const [number, at] of now.entries()) {
      const one = partings[number];
      if (!graft(children[at], fresh[number], one.kept)) graft(children[at], clean([one.whole])[0], [0]);
      this.#shown[at] = one;
    }
    return now.length === changed.length;
  }

  #plain(text) {
    this.#shown = [];
    const [node] = this.#element.childNodes;
    if (node?.nodeType === Node.TEXT_NODE && text.startsWith(node.data)) node.appendData(text.slice(node.length));
    else this.#element.replaceChildren(text);
    return true;
  }
}

/** A text that is complete, as nodes. */
export function rendered(text) {
  const element = made("div", "prose");
  new Prose(element).update(text);
  return element;
}

/** Blocks of HTML as elements, with nothing in them that is not allowed. */
function clean(blocks) {
  const found = [...purified(blocks.map((html) => `<div>${html}</div>`).join("")).children];
  const whole = found.length === blocks.length; // all at once, since each time costs a document
  const elements = whole ? found : blocks.map((html) => around(purified(html)));
  elements.forEach(finish);
  return elements;
}

function around(fragment) {
  const element = made("div", "");
  element.append(fragment);
  return element;
}

/** Hold what leads elsewhere to `links.js`, and add what the page itself adds. */
function finish(block) {
  for (const link of block.querySelectorAll("a")) lead(link);
  for (const image of block.querySelectorAll("img")) if (imageOf(image.getAttribute("src")) === null) image.remove();
  for (const code of block.querySelectorAll("pre")) addCopy(code);
  for (const written of block.querySelectorAll("ul, ol, table, blockquote")) written.dir = "auto"; // bullets, columns
  for (const item of block.querySelectorAll("li")) if (BOX.test(item.textContent)) item.className = "task";
  for (const { parentElement: around } of block.querySelectorAll("table")) {
    around.className = "scroll";
    around.tabIndex = 0; // it scrolls too
  }
}

/** Make a link one that says nothing about this page, or none. */
function lead(link) {
  const address = linkOf(link.getAttribute("href"));
  if (address === null) return link.replaceWith(...link.childNodes);
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
}

function addCopy(code) {
  code.tabIndex = 0; // it scrolls, so keys must reach it
  if (!navigator.clipboard) return; // a page over plain http has none
  const button = made("button", "plain");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
  });
  code.parentElement.querySelector("figcaption")?.append(button);
}

function made(tag, name) {
  const element = document.createElement(tag);
  element.className = name;
  return element;
}
