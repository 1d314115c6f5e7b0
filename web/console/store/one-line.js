/** Texts shortened to one line, for lists and summaries. */

const READ_FACTOR = 10; // characters read per character shown: enough for runs of spaces, little of a megabyte

/** Return a text on one line, of at most `maxChars` characters; a text that is cut ends with an ellipsis. */
export function oneLine(text, maxChars) {
  const start = text.slice(0, READ_FACTOR * maxChars);
  const characters = [...start.replace(/\s+/g, " ").trim()];
  if (characters.length <= maxChars && start.length === text.length) return characters.join("");
  return `${characters.slice(0, maxChars - 1).join("")}…`;
}
