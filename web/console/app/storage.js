/**
 * The storages of the browser, guarded: every call answers, also where the browser refuses storage or has no room.
 *
 * A value that the browser does not store is held in memory: it lasts until the page is reloaded.
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
