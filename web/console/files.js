/**
 * The files of a session: a fold over `artifact.write` and `assistant.files`, the last written first. Pure.
 *
 * `content` is the text that a call of the agent wrote, where the log has that call; `address` leads to a blob of the
 * server. A file with neither was written where the log does not reach.
 */

import { fileOf } from "./links.js";

export class Files {
  version = 0;
  #byKey = new Map();
  #texts = new Map(); // path as a call named it -> what the call wrote there

  /** Take one event into account. */
  apply(event) {
    const { type, payload } = event;
    if (type === "tool.call") this.#call(payload.args ?? {});
    else if (type === "artifact.write") this.#write(event, payload);
    else if (type === "assistant.files") for (const file of payload.files) this.#make(event, file);
  }

  get list() {
    return [...this.#byKey.values()].reverse();
  }

  /** Two texts among the arguments of a call, of which the second is the content: a tool that writes a file. */
  #call(args) {
    const texts = Object.values(args).filter((value) => typeof value === "string");
    if (texts.length === 2) this.#texts.set(...texts);
  }

  #write(event, { filename, path, size_bytes }) {
    const named = [...this.#texts].findLast(([place]) => place === path || `/${place}`.endsWith(`/${filename}`));
    this.#put(event, path, { name: filename, size: size_bytes, content: named?.[1] ?? null, address: null });
  }

  #make(event, { file_id, filename, storage_location }) {
    this.#put(event, file_id, { name: filename, size: null, content: null, address: fileOf(storage_location) });
  }

  #put({ ts, seq, channel = "" }, id, file) {
    const key = `${channel} ${id}`;
    this.#byKey.delete(key);
    this.#byKey.set(key, { key, ts, seq, ...file });
    this.version += 1;
  }
}

const LOOKS = [
  ["picture", /\.(png|jpe?g|gif|webp)$/i],
  ["text", /\.(html?|txt|md|csv|tsv|json|jsonl|xml|svg|log|ya?ml|toml|py|js|ts|css|sql|sh)$/i],
];

/** How a file can be shown, by its name: as a picture, as text, or not (null). HTML is text: nothing in it runs. */
export const lookOf = (name) => LOOKS.find(([, ending]) => ending.test(name))?.[0] ?? null;
