/** URLs and headers of requests to a server, which may be mounted below any path. */

/** Return the root URL of a server; by default the directory of the page. */
export function baseUrl(url = ".") {
  const root = new URL(url, globalThis.document?.baseURI);
  if (!root.pathname.endsWith("/")) root.pathname += "/";
  root.search = root.hash = "";
  return root.href;
}

/** Return a URL below a root, with the parameters that have a value. */
export function buildUrl(root, path, parameters = {}) {
  const url = new URL(path, root);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

/** Return the headers of a token, and of the principal that the server must check the cookie against (412). */
export const authHeaders = ({ token, principal }) => ({
  ...(token && { authorization: `Bearer ${token}` }),
  ...(principal && { "turnlog-principal": encodeURIComponent(principal) }),
});
