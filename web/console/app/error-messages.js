/** Errors as messages for people: `words` tell what happened and what to do, `detail` is for a developer. Pure. */

import { Conflict, Forbidden, NotFound, TooMany, Unreachable } from "../../client/api/errors.js";

// keyed by class: the build shortens the names of classes
const MESSAGES = new Map([
  [Unreachable, "The server does not answer. Try again in a moment."],
  [Forbidden, "You are not allowed to do this."],
  [NotFound, "This does not exist, or you have no access to it."],
  [Conflict, "This was already done, or it changed in the meantime."],
  [TooMany, "Too many requests. Wait a moment, then try again."],
]);
const DEFAULT_MESSAGE = "The server could not do this. Try again in a moment.";

/** Return `{words, detail}` of an error of the client, or of `{message}`. `detail` may be null. */
export function errorMessage(error) {
  const { message, status = 0 } = error;
  const words = MESSAGES.get(error.constructor);
  if (words) return { words, detail: message };
  if (status > 0 && status < 500) return { words: `This was not accepted: ${message}`, detail: null };
  return error instanceof Error ? { words: DEFAULT_MESSAGE, detail: message } : { words: message, detail: null };
}
