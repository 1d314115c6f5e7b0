/**
 * Which URLs from events the page may use. A link is http, https or mailto; an image is a blob of this server or a
 * short data URL. For anything else the functions return null, and the caller shows text.
 */

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const BLOB = /^\/?(api\/blobs\/[\w/-]+)$/; // no dots: the path cannot leave the blobs
const INLINE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/;
const MAX_INLINE_CHARS = 200_000;

/** Return a link's normalized URL, or null if it is not allowed. */
export function allowedLink(address) {
  const url = URL.canParse(address) ? new URL(address) : null;
  return url && SCHEMES.has(url.protocol) ? url.href : null;
}

/** Return the host of a link, or the address of a mail link. */
export const linkHost = (link) => new URL(link).host || new URL(link).pathname;

/** Return the URL of a blob relative to the server's root, wherever that is mounted, or null. */
export const blobUrl = (address) => BLOB.exec(address)?.[1] ?? null;

/** Return the URL of an image that may be loaded, or null. */
export function allowedImage(address) {
  if (typeof address !== "string") return null;
  const file = blobUrl(address);
  if (file) return file;
  return address.length <= MAX_INLINE_CHARS && INLINE.test(address) ? address : null;
}
