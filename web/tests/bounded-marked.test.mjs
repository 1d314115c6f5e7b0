// Reading a text costs in proportion to its length, whatever its shape. Counted are characters that marked's own rules
// look at, not time: those of a rule that finds nothing are all that it was given.

import assert from "node:assert/strict";
import { test } from "node:test";

import { StreamingMarkdown } from "../console/markdown/streaming.js";
import { Lexer, Tokenizer, marked } from "../node_modules/marked/lib/marked.esm.js";
import { renderHtml } from "./markdown-samples.mjs";

const CHARS = 4000;
const TIMES = 4; // as long is the second text
const MAX_GROWTH = 5; // of the work: 4 is in proportion, 16 a square

const SHAPES = {
  "emphasis that nothing closes": "_a*",
  "emphasis of two kinds": "*_*_a",
  "stars behind words": "a*",
  "a run of stars": "*",
  "deletions that nothing closes": "~a ",
  "emphasis in emphasis": "*a **b ",
  "one long word": "a",
  "local parts of addresses": "a.",
  "addresses without an end": "a@",
  "code that nothing closes": "`a``",
  "brackets that nothing closes": "[a",
  "brackets in brackets": "[[a]",
  "escaped brackets": "\\[",
  "links that nothing closes": "[a](",
  "addresses of pages with marks": "http://a!",
  "marks of exclamation": "!",
  "tags that nothing closes": "<kbd>",
  "lines of an item": "- a\n  ",
  "quotes in quotes": " >",
  "lists in lists": "+ ",
  headings: "#\n",
};
const pumped = (shape, chars) => SHAPES[shape].repeat(chars / SHAPES[shape].length);

const SEARCHES = { emStrong: /^[*_]/, del: /^~/, codespan: /^`/, link: /^!?\[/, reflink: /^!?\[/ };
const WORK = {
  blockTokens: ([{ length }]) => length,
  inlineTokens: ([{ length }]) => length,
  lheading: ([source]) => source.split("\n\n", 1)[0].length,
  url: ([source]) => /^\S*/.exec(source)[0].length,
  inlineText: ([source], token) => token.raw.length * /^\S*/.exec(source)[0].length, // an address may begin anywhere
};
for (const [rule, begins] of Object.entries(SEARCHES)) {
  WORK[rule] = ([source], token) => (begins.test(source) ? (token?.raw ?? source).length : 0);
}

/** How many characters marked looks at while `read` runs. */
function worked(read) {
  const before = [Lexer.prototype, Tokenizer.prototype].map((prototype) => {
    const own = Object.keys(WORK).filter((name) => Object.hasOwn(prototype, name));
    return [prototype, Object.fromEntries(own.map((name) => [name, prototype[name]]))];
  });
  let work = 0;
  for (const [prototype, rules] of before) {
    for (const [name, rule] of Object.entries(rules)) {
      prototype[name] = function count(...given) {
        const token = rule.apply(this, given);
        work += WORK[name](given, token);
        return token;
      };
    }
  }
  try {
    read();
  } finally {
    for (const [prototype, rules] of before) Object.assign(prototype, rules);
  }
  return work;
}

const growth = (read, shape, chars) =>
  worked(() => read(pumped(shape, chars * TIMES))) / worked(() => read(pumped(shape, chars)));

for (const shape of Object.keys(SHAPES)) {
  test(`work grows with the length: ${shape}`, () => {
    assert.ok(growth(renderHtml, shape, CHARS) < MAX_GROWTH);
  });
}

for (const shape of ["emphasis that nothing closes", "one long word", "brackets that nothing closes"]) {
  test(`control: marked without bounds takes a square: ${shape}`, () => {
    assert.ok(growth((text) => marked.parse(text), shape, CHARS / 4) > 12);
  });
}

const letters = (html) => html.replace(/<[^>]*>/g, "").replaceAll("\n", "");

for (const shape of ["emphasis that nothing closes", "one long word", "brackets that nothing closes"]) {
  test(`every letter is shown: ${shape}`, () => {
    const text = pumped(shape, 100_000);
    assert.ok(letters(renderHtml(text)) === text);
  });
}

test("a block over its bound is plain, those around it are not", () => {
  const html = renderHtml(`*one*\n\n${"*two ".repeat(10_000)}\n\n*three*`);
  assert.equal(html.replaceAll("*two ", ""), "<p><em>one</em></p>\n<p></p>\n<p><em>three</em></p>\n");
});

test("a long text of ordinary words keeps its markup to the end", () => {
  const words = "Call `read_file` of **the tool** [again](https://e.com/a_b), see _notes_ at 2 * 3 or mail a@b.com. ";
  const html = renderHtml(words.repeat(300));
  assert.equal(html.match(/<code>read_file<\/code> of <strong>the tool<\/strong> <a /g).length, 300);
  assert.equal(html.match(/<em>notes<\/em> at 2 \* 3 or mail <a href="mailto:a@b.com">/g).length, 300);
});

test("a picture that is longer than the words of a block may be is shown", () => {
  const picture = `data:image/png;base64,${"A".repeat(100_000)}`;
  assert.ok(renderHtml(`![a](${picture})`) === `<p><img src="${picture}" alt="a"></p>\n`);
});

test("pieces of a text over its bound show what the whole does", () => {
  const text = "_a*".repeat(1500);
  const blocks = new StreamingMarkdown();
  for (let at = 300; at < text.length; at += 300) blocks.update(text.slice(0, at), { open: true });
  blocks.update(text);
  assert.ok(blocks.html.join("") === renderHtml(text));
});
