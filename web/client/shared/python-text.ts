/** Text functions with Python's results, so that client and server agree: white space, length, repr. */

const WHITE_SPACE = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const BLANK = new RegExp(`^[${WHITE_SPACE}]*$`);
const UNPRINTABLE = /[\p{C}\p{Z}\\]/gu; // what `repr` escapes
const ESCAPES = new Map([
  ["\\", "\\\\"],
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"],
  [" ", " "],
]);
const MAX_REPR_CHARS = 80; // enough to recognise the input

/** Whether a text is empty or white space; `String.trim` knows other spaces than Python. */
export const isBlank = (text: string): boolean => BLANK.test(text);

export const codePointLength = (text: string): number => Array.from(text).length;

/** Return Python's `repr` of a text, cut to 80 characters. */
export function pythonRepr(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inside = text.replace(UNPRINTABLE, escapeCharacter).replaceAll(mark, mark === "'" ? "\\'" : mark);
  const characters = Array.from(mark + inside + mark);
  return characters.length <= MAX_REPR_CHARS
    ? characters.join("")
    : `${characters.slice(0, MAX_REPR_CHARS - 1).join("")}…`;
}

function escapeCharacter(character: string): string {
  const known = ESCAPES.get(character);
  if (known !== undefined) return known;
  const code = character.codePointAt(0) as number;
  const [letter, digits]: [string, number] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
}
