// Markdown to try: texts that a seed gives, and long ones that are a single block.

import { StreamingMarkdown } from "../console/markdown/streaming.js";
import { numbers } from "./random.mjs";

/** Render a complete text to HTML. */
export function renderHtml(text) {
  const markdown = new StreamingMarkdown();
  markdown.update(text);
  return markdown.html.join("");
}

const PARTS = [
  "a",
  "b c",
  "\n",
  "\n\n",
  "\n\n\n",
  "# ",
  "## h",
  "#",
  "- ",
  "* ",
  "1. ",
  "2) ",
  "  ",
  "    ",
  "\t",
  "> ",
  ">",
  "```",
  "```js\n",
  "~~~",
  "`",
  "*",
  "**",
  "_",
  "| a | b |",
  "|---|---|",
  "|-",
  "|",
  "---",
  "===",
  "***",
  "- [ ] x",
  "<div>",
  "</div>",
  "<!--",
  "-->",
  "[a]: http://x.y/z",
  "[a]",
  "[t](http://q.r)",
  "![i](http://q.r/p.png)",
  "\\\\",
  "&amp;",
  "\r\n",
  "\r",
  "text",
  "http://auto.link",
  "+ ",
  "10. ",
  "\n- ",
  "\n  - ",
  "\n> ",
  "\n\n    ",
  "  \n",
  "<script>",
  "<pre>\n",
  "<kbd>",
  "</kbd>",
  "<KBD>x</KBD>",
  "<kbd>Esc</kbd>",
  "<br>",
  "<sub>*2</sub>",
  "```diff\n",
  "\n+ a",
  "\n-b",
];

// Lines that make one block, and lines that end it, join it or change what it is.
const LINES = [
  [
    "- a *b*",
    "- b",
    "- c `d`",
    "  more",
    "  - n",
    "  - m",
    "    - o",
    "",
    "- [ ] x",
    "- [x] y",
    "lazy",
    "  ```",
    "  code",
    "  | a |",
    "  |---|",
    "* x",
    "   - z",
    "-",
    "  > q",
    "  # h",
    "---",
    "-\ta",
  ],
  ["1. a", "2. b **c**", "10) d", "   x", "", "   - n", "3. [a](http://b.c)", "4.", "  y", "1."],
  [
    "| a | b |",
    "|---|---|",
    "|:-:|--:|",
    "| 1 | *2* |",
    "| `x|y` |",
    "x",
    "",
    "a | b | c",
    "- l",
    "# h",
    "\t",
    "|",
    "> q",
    "    i",
    "[a]: http://x",
  ],
  [
    "> a *b*",
    "> b c",
    ">",
    "> - l",
    "> - m",
    ">   n",
    "> > q",
    "> ```",
    "> x",
    "lazy",
    "",
    "> # h",
    "> | a |",
    "> |---|",
    ">\tt",
    ">x",
    "> [a]: b",
    "> 1. n",
  ],
  ["```", "```js", "~~~", "x", "  y", "", "    z", "````", "``", " ```", "text", "- a"],
  ["```diff", "+ a", "-b < c", "--- a/x", "+++ b/x", "@@ -1 +1 @@", " same", "", "```", "text"],
  ["    x", "    y", "", "     z", "  ", "\tt", "text", "- a"],
  ["press <kbd>Ctrl</kbd> now", "a <kbd>b", "c</kbd> d", "one<br>two <br/> x", "H<sub>2</sub>O *a <sup>b* c</sup>"],
  ["a <kbd>b", "c</kbd> d", "<mark>", "</mark> y", "<kbd>a</sub> z", "<BR> w", ""],
  [
    "some words here",
    "a *b c* d __e__ f",
    "x_y_z [1] and [INFO] ok",
    "~5 items ~6~ b",
    "2 * 3 * 4",
    "*open one",
    "close* it",
    "`code` and `open",
    "more` end",
    "[link](http://a.b) tail",
    "[open link",
    "close](http://a.b) x",
    "<b> & <i x",
    "y> z",
    "a | b",
    "---",
    "===",
    "|--|",
    ":-:",
    "  two  ",
    "    four",
    "-- x",
    "=== y",
    "\\* e \\[",
    "http://a.b/c_d e",
    "[a]: http://x",
    "[a] [b][a]",
    "",
    "- l",
    "*a __b* c",
    "d__ e",
    "*a__b* c__ d",
    "**a*b*c d",
    "foo@bar.com x",
    "![i](http://a.b/c) d",
    "e\\",
    "f  ",
    "&#65; &am",
    "p; x",
    "~~del~~ a ~~b",
    "c~~ d",
    "***x** y* z",
  ],
];

/** A text of parts or lines that mean something beside each other, and where it is cut. */
export function drawn(seed) {
  const random = numbers(seed);
  const pick = (count) => Math.floor(random() * count);
  const some = (list, count) => Array.from({ length: 1 + pick(count) }, () => list[pick(list.length)]);
  const text = seed % 2 ? some(PARTS, 25).join("") : lined(random, pick, some);
  const cuts = [];
  for (let at = 0; at < text.length; cuts.push(at)) at = Math.min(text.length, at + 1 + pick(random() < 0.5 ? 2 : 12));
  return { text, cuts };
}

/** A text mostly of one block's lines, in a block quote or in an item now and then. */
function lined(random, pick, some) {
  const few = some(LINES[pick(LINES.length)], 6);
  const any = () => some(LINES[pick(LINES.length)], 1)[0];
  const lines = some(few, 16).map((line) => (random() < 0.15 ? any() : line));
  const around = [
    ["", ""],
    ["", ""],
    ["", ""],
    ["> ", "> "],
    ["- ", "  "],
  ][pick(5)];
  return lines.map((line, at) => around[at ? 1 : 0] + line).join(random() < 0.2 ? " " : "\n");
}

const SENTENCE = "Some *words* about **part {}**, with `code` and a [link](https://example.com/{}).";
const said = (number) => SENTENCE.replaceAll("{}", number);

/** A text of so many characters: its beginning, and what each number adds. */
function long(length, first, more) {
  let text = first;
  for (let number = 1; text.length < length; number += 1) text += more(number);
  return text;
}

/** Texts of so many characters, each a single block, by what it is. */
export const single = (length) => ({
  list: long(length, "", (at) => `- ${said(at)}\n`),
  "loose list": long(length, "", (at) => `- ${said(at)}\n\n`),
  "ordered list": long(length, "", (at) => `${at}. ${said(at)}\n`),
  "list of tasks": long(length, "", (at) => `- [x] ${said(at)}\n`),
  "nested list": long(length, "", (at) => `- ${said(at)}\n  - one *a*\n  - two\n    - three ${at}\n`),
  "list with code": long(length, "", (at) => `- ${said(at)}\n  \`\`\`js\n  let a = ${at};\n  \`\`\`\n`),
  "list behind a line": long(length, "These:\n", (at) => `- ${said(at)}\n`),
  table: long(length, "| a | b |\n|---|--:|\n", (at) => `| ${at} | ${said(at)} |\n`),
  "table and text":
    long(length / 2, "|a|\n|-|\n", (at) => `|${said(at)}|\n`) + long(length / 2, "\n", (at) => `${said(at)} `),
  quote: long(length, "", (at) => `> ${said(at)}\n>\n`),
  "paragraph in a quote": long(length, "", (at) => `> ${said(at)}\n`),
  "list in a quote": long(length, "", (at) => `> - ${said(at)}\n`),
  paragraph: long(length, "", (at) => `${said(at)} `),
  lines: long(length, "", (at) => `[INFO] ${at} some_thing happened in module_${at} (it is <fine>) & 2 * 3.\n`),
  code: long(length, "```js\n", (at) => `let a${at} = ${at} < 3 && "b";\n`),
  "diff code": long(length, "```diff\n", (at) => `${at % 3 ? "+" : "-"} let a${at} = ${at} < 3;\n same ${at}\n`),
  "paragraph with keys": long(length, "", (at) => `Press <kbd>F${at}</kbd> and <kbd>x</kbd> <br> ${said(at)} `),
  "indented code": long(length, "", (at) => `    let a${at} = ${at};\n`),
  references: long(length, "[a]: https://example.com\n\n", (at) => `- See [it][a] and ${said(at)}\n`),
  footnotes: long(length, "", (at) => `- A claim[^${at}] and ${said(at)}\n`) + "\n[^1]: The note says so.\n",
});
