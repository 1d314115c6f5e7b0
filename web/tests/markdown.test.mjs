// Markdown as it is written: any pieces give the same HTML as the whole, with as much work, and what leads elsewhere
// is checked.

import assert from "node:assert/strict";
import { test } from "node:test";

import { StreamingMarkdown } from "../console/markdown/streaming.js";
import { allowedImage, allowedLink, linkHost } from "../console/markdown/url-policy.js";
import { Lexer } from "../node_modules/marked/lib/marked.esm.js";
import { drawn, renderHtml, single } from "./markdown-samples.mjs";

const TEXTS = 1200;

/** The HTML of a text that came at once. */
function atOnce(text, options) {
  const blocks = new StreamingMarkdown();
  blocks.update(text, options);
  return blocks.html.join("");
}

test("any pieces show what the whole would, while it is written and at the end", () => {
  for (let seed = 0; seed < TEXTS; seed += 1) {
    const { text, cuts } = drawn(seed);
    const blocks = new StreamingMarkdown();
    for (const cut of cuts) {
      blocks.update(text.slice(0, cut), { open: true });
      const whole = atOnce(text.slice(0, cut), { open: true });
      assert.equal(blocks.html.join(""), whole, `seed ${seed}, ${JSON.stringify(text.slice(0, cut))}`);
    }
    blocks.update(text);
    assert.equal(blocks.html.join(""), renderHtml(text), `seed ${seed}, ${JSON.stringify(text)}`);
  }
});

const PART =
  "## Part\n\nSome *words* with `code`.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\nlet a;\n```\n\n";

test("blocks that are finished are not made again", () => {
  const blocks = new StreamingMarkdown();
  blocks.update(PART.repeat(20), { open: true });
  const before = blocks.html;
  const [first] = before;
  blocks.update(PART.repeat(20) + "More", { open: true });
  assert.equal(blocks.html, before);
  assert.equal(blocks.html[0], first);
});

/** How many characters marked is given, for blocks and for what is in them, while a text comes in pieces. */
function readFor(text, step) {
  const { blockTokens, inlineTokens } = Lexer.prototype;
  let read = 0;
  const counted = (work) =>
    function count(source, ...more) {
      read += source.length;
      return work.call(this, source, ...more);
    };
  Object.assign(Lexer.prototype, { blockTokens: counted(blockTokens), inlineTokens: counted(inlineTokens) });
  const blocks = new StreamingMarkdown();
  for (let at = step; at < text.length; at += step) blocks.update(text.slice(0, at), { open: true });
  blocks.update(text);
  Object.assign(Lexer.prototype, { blockTokens, inlineTokens });
  return read;
}

test("twice the text is twice the work", () => {
  const text = PART.repeat(100);
  assert.ok(readFor(text, 80) > text.length);
  assert.ok(readFor(text + text, 80) < 2.1 * readFor(text, 80));
});

// Each is given to marked about four times in all: when it is new, when it is the end, and once when it is cut.
for (const [name, text] of Object.entries(single(20_000))) {
  test(`a text that is one block is not read again and again: ${name}`, () => {
    assert.ok(readFor(text, 300) < 12 * text.length);
  });
}

test("a text that is not the beginning of the next one starts anew", () => {
  const blocks = new StreamingMarkdown();
  blocks.update("# One\n\nTwo", { open: true });
  blocks.update("Three");
  assert.equal(blocks.html.join(""), "<p>Three</p>\n");
});

test("what stops marked stops nothing", () => {
  assert.equal(renderHtml("- a\n  >0. \n|"), "<ul>\n<li>a\n&gt;0. \n|</li>\n</ul>\n");
});

for (const [text, formulas] of [
  ["Then $E = mc^2$ holds.", ["$E = mc^2$"]],
  ["It costs $5, then $10, or $3-$4.", []],
  ["Between \\(a_1 * b_1 * c\\) and \\[\\frac{1}{2}\\].", ["\\(a_1 * b_1 * c\\)", "\\[\\frac{1}{2}\\]"]],
  ["$$\na\n- b\n= \\{c\\}\n$$\n\nafter", ["$$\na\n- b\n= \\{c\\}\n$$"]],
  ["a $$x$$ b", ["$$x$$"]],
  ["`$a$` and\n\n```\n$$b$$\n```", []],
  ["$$\n\n$$ and \\(\n\n\\)", []],
  ["$<img src=x onerror=alert(1)>$", ["$&lt;img src=x onerror=alert(1)&gt;$"]],
]) {
  test(`formulas in ${JSON.stringify(text)}`, () => {
    const found = [...renderHtml(text).matchAll(/<var>([^]*?)<\/var>/g)].map(([, formula]) => formula);
    assert.deepEqual(found, formulas);
  });
}

test("a formula is markdown until the text is complete", () => {
  const blocks = new StreamingMarkdown();
  blocks.update("So $a_", { open: true });
  blocks.update("So $a_1$", { open: true });
  assert.equal(blocks.html.join(""), "<p>So $a_1$</p>\n");
  blocks.update("So $a_1$");
  assert.equal(blocks.html.join(""), "<p>So <var>$a_1$</var></p>\n");
});

test("many signs without an end take time in proportion to their number", () => {
  for (const sign of ["$", "$$", "\\(", "\\[", "$a", "$$ a\n"]) {
    assert.ok(!renderHtml(sign.repeat(10_000)).includes("<var>$$$$"));
  }
});

test("references are resolved at the end", () => {
  const text = "See [it][a].\n\n[a]: https://example.com/a";
  assert.equal(atOnce(text, { open: true }), "<p>See [it][a].</p>\n");
  assert.equal(renderHtml(text), '<p>See <a href="https://example.com/a">it</a>.</p>\n');
});

for (const [markdown, html] of [
  ["<b>x</b><img src=x onerror=alert(1)>", "<p>&lt;b&gt;x&lt;/b&gt;&lt;img src=x onerror=alert(1)&gt;</p>\n"],
  ["<script>\nalert(1)\n</script>", "<p>&lt;script&gt;\nalert(1)\n&lt;/script&gt;</p>\n"],
  ["[x](javascript:alert(1))", "<p>x</p>\n"],
  ["[x](data:text/html,1)", "<p>x</p>\n"],
  ["[x](relative)", "<p>x</p>\n"],
  ['[x](https://e.com/"onclick=1 "a\\"b")', '<p><a href="https://e.com/%22onclick=1" title="a&quot;b">x</a></p>\n'],
  ["<https://e.com/?a=1&b=2>", '<p><a href="https://e.com/?a=1&amp;b=2">https://e.com/?a=1&amp;b=2</a></p>\n'],
  ["![alt](https://evil.com/p.png?q=1)", '<p><a href="https://evil.com/p.png?q=1">Image: alt (evil.com)</a></p>\n'],
  ["![](http://evil.com)", '<p><a href="http://evil.com/">Image: no description (evil.com)</a></p>\n'],
  ["[![alt](https://evil.com/p)](https://e.com)", '<p><a href="https://e.com/">alt</a></p>\n'],
  ["![alt](//evil.com/p)", "<p>alt</p>\n"],
  ['![a"b](api/blobs/sess_1/abc)', '<p><img src="api/blobs/sess_1/abc" alt="a&quot;b"></p>\n'],
  ["- [x] a\n- [ ] b", "<ul>\n<li>\u2611 a</li>\n<li>\u2610 b</li>\n</ul>\n"],
  ["```<i>\n<b>\n```", "<figure><figcaption></figcaption><pre><code>&lt;b&gt;\n</code></pre></figure>\n"],
  ["### a\n# b\n### c\n## d", "<h3>a</h3>\n<h3>b</h3>\n<h4>c</h4>\n<h4>d</h4>\n"],
  ["# 1\n## 2\n### 3\n#### 4\n##### 5", "<h3>1</h3>\n<h4>2</h4>\n<h5>3</h5>\n<h6>4</h6>\n<h6>5</h6>\n"],
]) {
  test(`markdown: ${markdown}`, () => assert.equal(renderHtml(markdown), html));
}

for (const [address, link] of [
  ["https://e.com/a b", "https://e.com/a%20b"],
  ["mailto:a@b.c", "mailto:a@b.c"],
  ["HTTP://E.com", "http://e.com/"],
  [" javascript:alert(1)", null],
  ["java\nscript:alert(1)", null],
  ["vbscript:x", null],
  ["data:image/png;base64,AA==", null],
  ["//e.com", null],
  ["/api/x", null],
  ["file:///etc/passwd", null],
  ["blob:https://e.com/1", null],
  ["", null],
  [undefined, null],
]) {
  test(`link: ${address}`, () => assert.equal(allowedLink(address), link));
}

test("the place of a link is where it leads, not what it looks like", () => {
  assert.equal(linkHost(allowedLink("https://good.com@evil.com/good.com")), "evil.com");
  assert.equal(linkHost("mailto:a@b.c"), "a@b.c");
});

for (const [address, image] of [
  ["api/blobs/sess_1/abc", "api/blobs/sess_1/abc"],
  ["/api/blobs/sess_1/abc", "api/blobs/sess_1/abc"],
  ["data:image/png;base64,AA==", "data:image/png;base64,AA=="],
  [`data:image/png;base64,${"A".repeat(300_000)}`, null],
  ["api/blobs/../stop", null],
  ["api/blobs/%2e%2e/stop", null],
  ["data:image/svg+xml;base64,AA==", null],
  ["data:text/html,x", null],
  ["https://e.com/p.png", null],
  ["//e.com/api/blobs/x", null],
  [undefined, null],
]) {
  test(`image: ${String(address).slice(0, 40)}`, () => assert.equal(allowedImage(address), image));
}
