/**
 * Which regular expressions of a surface the page runs: a pattern comes from a model, and some patterns take longer
 * than a life. Refused are long patterns, a repeated group that itself repeats, chooses or may be empty, references
 * back and assertions, and many repetitions in a row. What is left takes the fourth power of a short text at worst.
 */

const MAX_PATTERN_CHARS = 200;
const MAX_TEXT_CHARS = 200;
const MAX_UNBOUNDED = 3; // an e-mail address needs three
const MAX_OPTIONAL = 8;

/** Test a text; a pattern or a text that is refused does not match. */
export function testPattern(pattern, text) {
  if (text.length > MAX_TEXT_CHARS || !isBounded(pattern)) return false;
  try {
    return new RegExp(pattern).test(text);
  } catch {
    return false; // not a pattern
  }
}

/** Whether a pattern runs in bounded time. */
export function isBounded(pattern) {
  if (pattern.length > MAX_PATTERN_CHARS) return false;
  const groups = [false]; // of each open group: whether it can match in several ways
  let unbounded = 0;
  let optional = 0;
  for (const [token] of pattern.matchAll(TOKENS)) {
    if (REFUSED.test(token)) return false;
    if (token.startsWith("(")) groups.push(false);
    else if (token.startsWith(")")) {
      const isAmbiguous = groups.length > 1 && groups.pop();
      const isRepeated = /[*+{]/.test(token);
      if (isRepeated && isAmbiguous) return false;
      groups[groups.length - 1] ||= isAmbiguous || token.length > 1;
    } else if (token === "|" || QUANTIFIED.test(token)) groups[groups.length - 1] = true;
    const [quantifier] = /(?:[*+?]|\{\d*,?\d*\})\??$/.exec(token === "(?:" ? "" : token) ?? [""];
    if (/^[*+]|,\}/.test(quantifier)) unbounded += 1;
    else if (/^\?|,\d+\}/.test(quantifier)) optional += 1;
  }
  return unbounded <= MAX_UNBOUNDED && optional <= MAX_OPTIONAL;
}

const QUANTIFIER = "(?:(?:[*+?]|\\{\\d+(?:,\\d*)?\\})\\??)?";
const TOKENS = new RegExp(
  `\\(\\?(?::|<?[=!]|<)|\\(|\\)${QUANTIFIER}|\\||(?:\\\\[\\s\\S]|\\[(?:\\\\[\\s\\S]|[^\\]])*\\]|[\\s\\S])${QUANTIFIER}`,
  "g",
);
const REFUSED = /^\(\?(?!:)|^\\[1-9k]/; // assertions, named groups, references back
const QUANTIFIED = /.(?:[*+?]|\{\d+(?:,\d*)?\})\??$/s;
