/** What went wrong, for a person: `words` say what happened and what to do, `detail` is what a developer wants. Pure. */

import { Conflict, Forbidden, NotFound, TooMany, Unreachable } from "../../client/api/errors.js";

// By class: the build shortens the names of classes.
const MESSAGES = new Map([
  [Unreachable, "The server does not answer. Try again in a moment."],
  [Forbidden, "You are not allowed to do this."],
  [NotFound, "This does not exist, or you have no access to it."],
  [Conflict, "This was already done, or it changed in the meantime."],
  [TooMany, "Too many requests. Wait a moment, then try again."],
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
