/**
 * Draws TeX as MathML, which browsers draw without fonts, styles or images of ours. A chunk of its own, loaded with the
 * first formula. KaTeX builds the elements itself: no markup is made of the text.
 */

import katex from "katex";

import "./draw-formula.css";

// A command that a formula defines may repeat its argument: a thousand characters would draw a million elements. No
// limit of KaTeX counts them, so a formula that defines something is an error.
const DEFINING = ["def", "edef", "gdef", "xdef", "let", "futurelet", "newcommand", "renewcommand", "providecommand"];
const NO_DEFINITIONS = Object.fromEntries(DEFINING.map((name) => [`\\${name}`, "\\undefined"]));

const OPTIONS = {
  output: "mathml",
  trust: false, // no links, images, classes or attributes from a text
  strict: "ignore",
  throwOnError: true,
  maxExpand: 200, // macros that expand for ever would block the page
  maxSize: 20, // em
};

/** Draw a formula into an element; one that KaTeX does not understand stays text. */
export function drawFormula(element, { tex, isDisplay }) {
  const drawn = document.createElement("span");
  try {
    katex.render(tex, drawn, { ...OPTIONS, macros: { ...NO_DEFINITIONS }, displayMode: isDisplay });
  } catch {
    return;
  }
  element.className = isDisplay ? "formula display" : "formula";
  element.replaceChildren(...drawn.querySelectorAll("math"));
}
