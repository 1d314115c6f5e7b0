/**
 * Finds formulas in a text: `$$…$$` and `\[…\]` on lines of their own, `\(…\)` and `$…$` between words.
 *
 * A single `$` is also a sign of money. So `$…$` is a formula only without a space inside of the signs and without a
 * digit behind them: "costs $5, then $10" has none. A formula has no empty line.
 */

const MAX_CHARS = 4000; // of a formula: a longer one stays text
const NO_EMPTY_LINE = "(?!\\n[ \\t]*\\n)";

const INLINE = [
  new RegExp(`^\\$\\$((?:${NO_EMPTY_LINE}[^$])+)\\$\\$`),
  /^\$(?![\s$])((?:\\[^\n]|[^$\\\n])+)(?<!\s)\$(?![\d$])/,
  new RegExp(`^\\\\\\(((?:${NO_EMPTY_LINE}(?!\\\\[()])[^])+)\\\\\\)`),
  new RegExp(`^\\\\\\[((?:${NO_EMPTY_LINE}(?!\\\\[[\\]])[^])+)\\\\\\]`),
];
const BLOCK = new RegExp(
  `^ {0,3}(\\$\\$(?:${NO_EMPTY_LINE}[^$])+\\$\\$|\\\\\\[(?:${NO_EMPTY_LINE}(?!\\\\[[\\]])[^])+\\\\\\])[ \\t]*(?:\\n+|$)`,
);
const DELIMITERS = /^(?:\$\$?|\\[[(])([^]*?)(?:\$\$?|\\[\])])$/;

/** Whether a text may have a formula. */
export const mayHaveFormula = (text) => /\$|\\[[(]/.test(text);

/** Return the formula at the start of an inline text, with its delimiters; undefined if there is none. */
export function matchInlineFormula(source) {
  if (source[0] !== "$" && source[0] !== "\\") return undefined;
  const piece = source.slice(0, MAX_CHARS);
  return INLINE.map((pattern) => pattern.exec(piece)?.[0]).find(Boolean);
}

/** Return the formula of a block at the start of a text: the text of the block, and the formula in it. */
export function matchBlockFormula(source) {
  const [raw, formula] = BLOCK.exec(source.slice(0, MAX_CHARS)) ?? [];
  return raw && { raw, formula };
}

/** Return the TeX of a formula with delimiters, and whether it stands on lines of its own. */
export function parseFormula(text) {
  const tex = DELIMITERS.exec(text)?.[1];
  return tex === undefined ? null : { tex: tex.trim(), isDisplay: text.startsWith("$$") || text.startsWith("\\[") };
}
