/**
 * What a person typed and has not sent, so that a reload does not lose it: JSON in the tab's own storage.
 *
 * A draft belongs to one showing of one thing: a session, an event, a part of it. Whoever has no storage, or a full
 * one, has no drafts and everything else.
 */

const PREFIX = "turnlog draft";

/** The draft of a place: `read` gives null if there is none. */
export function draftAt(session, event, part, storage = ownStorage()) {
  const key = [PREFIX, session, event, part].join(" ");
  return {
    read: () => attempt(() => JSON.parse(storage.getItem(key))),
    write: (value) => attempt(() => storage.setItem(key, JSON.stringify(value))),
    clear: () => attempt(() => storage.removeItem(key)),
  };
}

/** Forget the drafts of an event: nobody can send them any more. */
export function forget(session, event, storage = ownStorage()) {
  const begins = [PREFIX, session, event, ""].join(" ");
  attempt(() => {
    const keys = Array.from({ length: storage.length }, (_, at) => storage.key(at));
    for (const key of keys) if (key.startsWith(begins)) storage.removeItem(key);
  });
}

/** A browser may refuse its storage, and to write to it. */
function attempt(work) {
  try {
    return work() ?? null;
  } catch {
    return null;
  }
}

function ownStorage() {
  return attempt(() => globalThis.sessionStorage);
}
