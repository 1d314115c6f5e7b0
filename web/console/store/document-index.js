/**
 * The documents of a session by id, as the server has them (docs/protocol.md, section 9.5): a fold that keeps
 * what the client's `Documents` makes of each event. How a document is named and found is here too.
 */

import { Documents } from "../../client/folds/documents.js";

const WORDS = 100;

/** What the categories are called, in the order in which they are shown. */
export const SHELVES = new Map([
  ["transcript", "Messages"],
  ["identity", "Team"],
  ["knowledge", "Records of files"],
  ["operational", "Processes"],
]);

export class Library {
  version = 0;
  byId = new Map();
  shelves = new Map([...SHELVES.keys()].map((category) => [category, new Map()]));
  #documents = new Documents();

  /** Take one event into account. */
  apply(event) {
    for (const made of this.#documents.apply(event)) {
      this.version += 1;
      this.byId.set(made.id, made);
      this.shelves.get(made.category).set(made.id, made);
    }
  }
}

const TITLES = {
  message: ({ role, speakerName, content }) => [speakerName ?? role, said(content)],
  "agent-identity": ({ name, status }) => [name, status],
  artifact: ({ filename, path }) => [filename, path],
  marker: ({ kind, process }) => [kind === "session_start" ? "Started" : "Ended", process],
};

/** The name of a document, and what tells it from others. */
export const titleOf = ({ type, body }) => TITLES[type](body);

const PARTS = {
  text: ({ text }) => text,
  thinking: () => "thinking",
  tool_use: ({ name }) => `calls ${name}`,
};

/** The first words of a message. */
function said(content) {
  if (!content.length) return "taken back";
  const part = content.find(({ type }) => type === "text") ?? content[0];
  return PARTS[part.type](part).slice(0, WORDS).replace(/\s+/g, " ").trim();
}

const texts = new WeakMap();

/** Whether all words are in a document. */
export function holds(document, words) {
  if (!words.length) return true;
  if (!texts.has(document)) texts.set(document, JSON.stringify([document.id, document.body]).toLowerCase());
  const text = texts.get(document);
  return words.every((word) => text.includes(word));
}

export const wordsOf = (query) => query.toLowerCase().split(/\s+/).filter(Boolean);
