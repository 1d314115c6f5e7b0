/**
 * What a person typed and has not sent, so that a reload does not lose it: JSON in the tab's own storage.
 *
 * A draft belongs to one showing of one thing: a session, an event, a part of it.
 */

import { tabStorage } from "./storage.js";

const PREFIX = "turnlog draft";

/** The draft of a place: `read` gives null if there is none. */
export function draftAt(session, event, part, storage = tabStorage) {
  const key = [PREFIX, session, event, part].join(" ");
  return {
    read: () => parse(storage.read(key)),
    write: (value) => storage.write(key, JSON.stringify(value)),
    clear: () => storage.remove(key),
  };
}

/** Forget the drafts of an event: nobody can send them any more. */
export function forget(session, event, storage = tabStorage) {
  storage.removeAll([PREFIX, session, event, ""].join(" "));
}

/** Return the value of a text, or null if it is no JSON: an extension or an older console may have written it. */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
