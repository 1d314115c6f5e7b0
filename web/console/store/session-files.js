/**
 * Folds `artifact.write` and `assistant.files` to the files of a session, the last written first. Pure.
 *
 * `content` is the text that a tool call wrote, if the log has that call: the server appends `artifact.write` after
 * the call's result. `address` is a blob of the server. A file with neither was written outside the log.
 */

import { blobUrl } from "../markdown/url-policy.js";

/** The tools for which the server appends `artifact.write`, with the argument that holds the file's text. */
const CONTENT_ARGUMENTS = new Map([["Write", "content"]]);

export class SessionFiles {
  version = 0;
  #byKey = new Map();
  #writing = new Map(); // call id -> text, until its result
  #written = new Map(); // agent id -> text of its last result, until artifact.write

  apply(event) {
    const { type, payload, agent_id } = event;
    if (type === "tool.call") this.#call(payload);
    else if (type === "tool.result") this.#finish(payload, agent_id);
    else if (type === "artifact.write") this.#write(event, payload);
    else if (type === "assistant.files") for (const file of payload.files) this.#make(event, file);
  }

  get list() {
    return [...this.#byKey.values()].reverse();
  }

  #call({ call_id, tool, args }) {
    const text = args?.[CONTENT_ARGUMENTS.get(tool)];
    if (typeof text === "string") this.#writing.set(call_id, text);
  }

  #finish({ call_id, ok }, agent) {
    if (ok && this.#writing.has(call_id)) this.#written.set(agent, this.#writing.get(call_id));
    this.#writing.delete(call_id);
  }

  #write(event, { filename, path, size_bytes }) {
    const content = this.#written.get(event.agent_id) ?? null;
    this.#written.delete(event.agent_id);
    this.#put(event, path, { name: filename, size: size_bytes, content, address: null });
  }

  #make(event, { file_id, filename, storage_location }) {
    this.#put(event, file_id, { name: filename, size: null, content: null, address: blobUrl(storage_location) });
  }

  #put({ ts, seq, channel = "" }, id, file) {
    const key = `${channel} ${id}`;
    this.#byKey.delete(key);
    this.#byKey.set(key, { key, ts, seq, ...file });
    this.version += 1;
  }
}

const PREVIEWS = [
  ["picture", /\.(png|jpe?g|gif|webp)$/i],
  ["text", /\.(html?|txt|md|csv|tsv|json|jsonl|xml|svg|log|ya?ml|toml|py|js|ts|css|sql|sh)$/i],
];

/** Return how a file can be shown, by its name: "picture", "text" or null. HTML is text: nothing in it runs. */
export const previewKind = (name) => PREVIEWS.find(([, ending]) => ending.test(name))?.[0] ?? null;
