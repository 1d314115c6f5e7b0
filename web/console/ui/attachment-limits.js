/**
 * Checks files against the limits of an application before they are uploaded, and says what is wrong. Pure.
 *
 * `limits` are the `attachments` of a session (docs/protocol.md, section 8.3). Browsers give some text files no type:
 * then the ending of the name decides.
 */

const IMAGE = /^image\//;
const TYPES_BY_ENDING = new Map([
  ["csv", "text/csv"],
  ["json", "application/json"],
  ["log", "text/plain"],
  ["markdown", "text/markdown"],
  ["md", "text/markdown"],
  ["txt", "text/plain"],
]);
const KINDS = [
  ["image", (type) => IMAGE.test(type)],
  ["pdf", (type) => type === "application/pdf"],
  ["text", () => true],
];

/** Return the media type of a file; "" if it is not known. */
export function mediaTypeOf({ name, type }) {
  const [bare] = type.split(";");
  return bare || (TYPES_BY_ENDING.get(name.split(".").at(-1).toLowerCase()) ?? "");
}

export const fileKind = (type) => KINDS.find(([, holds]) => holds(type))[0];

/** Return the most bytes of a file of a type. */
export function maxBytesOf(type, { max_bytes, max_image_bytes, max_text_bytes }) {
  const byKind = { image: max_image_bytes, pdf: max_bytes, text: max_text_bytes };
  return Math.min(max_bytes, byKind[fileKind(type)]);
}

/** Return why a file cannot be sent, in the words of `texts`, or null. */
export function fileProblem(file, limits, texts, language) {
  const type = mediaTypeOf(file);
  if (!limits.media_types.includes(type)) return texts.wrongType(file.name, kindNames(limits, texts, language));
  if (file.size === 0) return texts.emptyFile(file.name);
  const most = maxBytesOf(type, limits);
  return file.size > most ? texts.tooLarge(file.name, formatFileSize(most, language)) : null;
}

/** Return the kinds of files that can be sent, as a list of words. */
export function kindNames({ media_types }, { fileKinds }, language) {
  const kinds = new Set(media_types.map(fileKind));
  const names = KINDS.flatMap(([kind]) => (kinds.has(kind) ? [fileKinds[kind]] : []));
  return new Intl.ListFormat(language, { type: "conjunction" }).format(names);
}

const UNITS = [
  [1024 * 1024, "MB"],
  [1024, "kB"],
  [1, "B"],
];

/** Return a size as people read it; a limit is never rounded up. */
export function formatFileSize(bytes, language) {
  const [size, unit] = UNITS.find(([least]) => bytes >= least) ?? UNITS.at(-1);
  const digits = bytes / size < 10 && size > 1 ? 1 : 0;
  const shown = Math.floor((bytes / size) * 10 ** digits) / 10 ** digits;
  return `${shown.toLocaleString(language, { maximumFractionDigits: digits })} ${unit}`;
}
