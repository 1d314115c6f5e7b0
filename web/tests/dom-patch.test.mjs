// Patched elements equal elements that were built at once, and elements before the change stay.

import assert from "node:assert/strict";
import { test } from "node:test";

import { EMPTY_BLOCK, diffHtml, patchElement } from "../console/markdown/dom-patch.js";
import { StreamingMarkdown } from "../console/markdown/streaming.js";
import { drawn } from "./markdown-samples.mjs";

/** As much of a node as `graft` touches. */
class Node {
  nodeType = 1;
  childNodes = [];
  parent = null;

  constructor(tagName) {
    this.tagName = tagName;
  }

  get children() {
    return this.childNodes.filter(({ nodeType }) => nodeType === 1);
  }

  get firstElementChild() {
    return this.children[0] ?? null;
  }

  get firstChild() {
    return this.childNodes[0] ?? null;
  }

  get lastChild() {
    return this.childNodes.at(-1) ?? null;
  }

  get nextSibling() {
    return this.parent.childNodes[this.parent.childNodes.indexOf(this) + 1] ?? null;
  }

  remove() {
    this.parent.childNodes.splice(this.parent.childNodes.indexOf(this), 1);
  }

  append(...nodes) {
    for (const node of nodes) {
      if (node.parent?.childNodes.includes(node)) node.remove();
      node.parent = this;
      this.childNodes.push(node);
    }
  }

  get html() {
    const inside = this.childNodes.map(({ html }) => html).join("");
    return this.tagName === null ? inside : `<${this.tagName}>${inside}</>`;
  }
}

class Text extends Node {
  nodeType = 3;

  constructor(data) {
    super(null);
    this.data = data;
  }

  get length() {
    return this.data.length;
  }

  appendData(more) {
    this.data += more;
  }

  get html() {
    return this.data;
  }
}

/** Nodes of HTML that is well-formed. */
function made(html) {
  const open = [new Node(null)];
  for (const [, end, tag, text] of html.matchAll(/<(?:\/(\w+)|([^>]+))>|([^<]+)/g)) {
    if (end) {
      assert.equal(open.pop().tagName.split(" ")[0], end);
      continue;
    }
    const node = text ? new Text(text) : new Node(tag);
    open.at(-1).append(node);
    if (tag && !/^(?:br|hr|img)\b/.test(tag)) open.push(node);
  }
  assert.equal(open.length, 1);
  return open[0];
}

/** Make an element show HTML instead of what is known of it. */
function changed(element, known, whole) {
  const next = diffHtml(known, whole);
  assert.ok(patchElement(element, made(next.html), next.kept), whole);
  return next;
}

test("elements end as if they had been made at once, whatever came before", () => {
  for (let seed = 0; seed < 400; seed += 1) {
    const { text, cuts } = drawn(seed);
    const element = new Node(null);
    const blocks = new StreamingMarkdown();
    let known = EMPTY_BLOCK;
    for (const cut of [...cuts, null]) {
      blocks.update(cut === null ? text : text.slice(0, cut), { open: cut !== null });
      const after = blocks.html.join("");
      known = changed(element, known, after);
      assert.equal(element.html, made(after).html, `seed ${seed}, ${JSON.stringify(text.slice(0, cut ?? undefined))}`);
    }
  }
});

test("what was there stays, and text goes on where it is", () => {
  const element = new Node(null);
  const known = changed(element, EMPTY_BLOCK, "<ul>\n<li>one</li>\n<li>tw</li>\n</ul>\n");
  const [list] = element.children;
  const [one, two] = list.children;
  const text = two.firstChild;
  changed(element, known, "<ul>\n<li>one</li>\n<li>two <em>x</em></li>\n<li>3</li>\n</ul>\n");
  assert.equal(element.html, "<ul>\n<li>one</>\n<li>two <em>x</></>\n<li>3</>\n</>\n");
  assert.deepEqual([element.children[0], list.children[0], list.children[1], two.firstChild], [list, one, two, text]);
});

test("where the elements are not those of the HTML nothing is done", () => {
  const element = made("<p>a</p>");
  const { kept, html } = diffHtml(diffHtml(EMPTY_BLOCK, "<ul><li>a</li></ul>"), "<ul><li>ab</li></ul>");
  assert.equal(patchElement(element, made(html), kept), false);
  assert.equal(element.html, "<p>a</>");
});
