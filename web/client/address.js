/** The addresses of a server: its root, wherever it is mounted, and what is asked of it. */

/** The root of a server; without a URL it is the directory of the page. */
export function rootOf(url = ".") {
  const root = new URL(url, globalThis.document?.baseURI);
  if (!root.pathname.endsWith("/")) root.pathname += "/";
  root.search = root.hash = "";
  return root.href;
}

/** A path below a root with the parameters that have a value. */
export function addressOf(root, path, parameters = {}) {
  const url = new URL(path, root);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

/** What says who is asking, if it is not the page's cookie, and the only principal that the server may answer (else 412). */
export const headersOf = ({ token, principal }) => ({
  ...(token && { authorization: `Bearer ${token}` }),
  ...(principal && { "turnlog-principal": encodeURIComponent(principal) }),
});
