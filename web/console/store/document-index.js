/**
 * Folds events to the documents of a session by id and category (docs/protocol.md, section 9.5), with titles and
 * search.
 */

import { Documents } from "../../client/team/index.js";
import { oneLine } from "./one-line.js";

const MAX_EXCERPT_CHARS = 100;

/** The titles of the categories, in the order of the panel. */
export const CATEGORY_TITLES = new Map([
  ["transcript", "Messages"],
  ["identity", "Team"],
  ["knowledge", "Records of files"],
  ["operational", "Processes"],
]);

export class DocumentIndex {
  version = 0;
  byId = new Map();
  byCategory = new Map([...CATEGORY_TITLES.keys()].map((category) => [category, new Map()]));
  #documents = new Documents();

  apply(event) {
    for (const document of this.#documents.apply(event)) {
      this.version += 1;
      this.byId.set(document.id, document);
      this.byCategory.get(document.category).set(document.id, document);
    }
  }
}

const TITLES = {
  message: ({ role, speakerName, content }) => [speakerName ?? role, messageExcerpt(content)],
  "agent-identity": ({ name, status }) => [name, status],
  artifact: ({ filename, path }) => [filename, path],
  marker: ({ kind, process }) => [kind === "session_start" ? "Started" : "Ended", process],
};

/** Return a document's name and a second text that tells it from others. */
export const documentTitle = ({ type, body }) => TITLES[type](body);

const PARTS = {
  text: ({ text }) => text,
  thinking: () => "thinking",
  tool_use: ({ name }) => `calls ${name}`,
};

function messageExcerpt(content) {
  if (!content.length) return "taken back";
  const part = content.find(({ type }) => type === "text") ?? content[0];
  return oneLine(PARTS[part.type](part), MAX_EXCERPT_CHARS);
}

const searchTexts = new WeakMap();

/** Whether a document contains all words. */
export function matchesQuery(document, words) {
  if (!words.length) return true;
  if (!searchTexts.has(document)) searchTexts.set(document, JSON.stringify([document.id, document.body]).toLowerCase());
  const text = searchTexts.get(document);
  return words.every((word) => text.includes(word));
}

export const queryWords = (query) => query.toLowerCase().split(/\s+/).filter(Boolean);
