/**
 * Which addresses out of events a page may use. A link goes to http, https or mailto; an image comes from the
 * server's own blobs or is short and inline. Everything else is no address: whoever asks shows text instead.
 */

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const BLOB = /^\/?(api\/blobs\/[\w/-]+)$/; // no dots: it cannot lead out of the blobs
const INLINE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/;
const MAX_INLINE_CHARS = 200_000;

/** The address of a link as a browser writes it, or null if it may not be followed. */
export function allowedLink(address) {
  const url = URL.canParse(address) ? new URL(address) : null;
  return url && SCHEMES.has(url.protocol) ? url.href : null;
}

/** Where a link leads, in few words. */
export const linkHost = (link) => new URL(link).host || new URL(link).pathname;

/** The address of a file that the server keeps, or null. From the server's own root, wherever that is mounted. */
export const blobUrl = (address) => BLOB.exec(address)?.[1] ?? null;

/** The address of an image that may be loaded, or null. */
export function allowedImage(address) {
  if (typeof address !== "string") return null;
  const file = blobUrl(address);
  if (file) return file;
  return address.length <= MAX_INLINE_CHARS && INLINE.test(address) ? address : null;
}
