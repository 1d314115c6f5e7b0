/** What went wrong, for a person: `words` say what happened and what to do, `detail` is what a developer wants. Pure. */

import { Conflict, Forbidden, NotFound, TooMany, Unreachable } from "../../client/api/errors.js";

// By class: the build shortens the names of classes.
const MESSAGES = new Map([
  [Unreachable, "The server does not answer. Try again in a moment."],
  [Forbidden, "You may not do this here."],
  [NotFound, "This is not there, or not for you."],
  [Conflict, "This was done already, or something has changed meanwhile."],
  [TooMany, "That was too much at once. Wait a moment, then try again."],
]);
const DEFAULT_MESSAGE = "The server could not do this. Try again in a moment.";

/** Words and detail of an error of the client (`client/errors.js`), or of a sentence of our own. */
export function errorMessage(error) {
  const { message, status = 0 } = error;
  const words = MESSAGES.get(error.constructor);
  if (words) return { words, detail: message };
  if (status > 0 && status < 500) return { words: `This was not accepted: ${message}`, detail: null };
  return error instanceof Error ? { words: DEFAULT_MESSAGE, detail: message } : { words: message, detail: null };
}
