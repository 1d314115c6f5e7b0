/**
 * Everything that the console stores in the browser: settings and drafts of a tab, choices of the browser.
 *
 * No call throws where the browser refuses storage or has no room. A value that the browser does not store is held
 * in memory: it lasts until the page is reloaded.
 */

export class PageStorage {
  #open; // () => Storage; throws where the browser refuses storage
  #memory = new Map();

  constructor(open) {
    this.#open = open;
  }

  /** Return the text stored under a key, or null. */
  read(key) {
    return this.#memory.get(key) ?? this.#attempt((storage) => storage.getItem(key));
  }

  write(key, text) {
    this.remove(key); // without room for the new text, the old one must not come back
    const isStored = this.#attempt((storage) => {
      storage.setItem(key, text);
      return true;
    });
    if (!isStored) this.#memory.set(key, text);
  }

  remove(key) {
    this.#memory.delete(key);
    this.#attempt((storage) => storage.removeItem(key));
  }

  /** Remove every key that begins with a prefix. */
  removeAll(prefix) {
    const keys = this.#attempt((storage) => Array.from({ length: storage.length }, (_, at) => storage.key(at)));
    for (const key of [...(keys ?? []), ...this.#memory.keys()]) if (key.startsWith(prefix)) this.remove(key);
  }

  #attempt(work) {
    try {
      return work(this.#open()) ?? null;
    } catch {
      return null;
    }
  }
}

export const tabStorage = new PageStorage(() => sessionStorage);
export const browserStorage = new PageStorage(() => localStorage);

// Settings: filters and choices of a person in this tab. Never a copy of the log.

const SETTING_PREFIX = "turnlog ";

export const loadSetting = (name, fallback) => tabStorage.read(SETTING_PREFIX + name) ?? fallback;

export const saveSetting = (name, value) => tabStorage.write(SETTING_PREFIX + name, value);

// Drafts: what a person typed into a form and has not sent, as JSON.

const DRAFT_PREFIX = "turnlog draft";

/** Return the draft of one part of one event. `read` returns null if there is none. */
export function openDraft(session, event, part, storage = tabStorage) {
  const key = [DRAFT_PREFIX, session, event, part].join(" ");
  return {
    read: () => parseJson(storage.read(key)),
    write: (value) => storage.write(key, JSON.stringify(value)),
    clear: () => storage.remove(key),
  };
}

/** Remove all drafts of an event, when it can no longer be answered. */
export function removeDrafts(session, event, storage = tabStorage) {
  storage.removeAll([DRAFT_PREFIX, session, event, ""].join(" "));
}

/** Return the value of a text, or null if it is no JSON: an extension or an older console may have written it. */
function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
