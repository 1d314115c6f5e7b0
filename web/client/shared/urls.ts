/** URLs and headers of requests to a server, which may be mounted below any path. */

/** A value of a query. Null, undefined and "" are left out. */
export type QueryValue = string | number | boolean | null | undefined;

/**
 * Return the root URL of a server; by default the directory of the page.
 *
 * Throws a `TypeError` for a relative URL where there is no page, as in Node.
 */
export function baseUrl(url = "."): string {
  const base = globalThis.document?.baseURI;
  if (base === undefined && !URL.canParse(url)) {
    throw new TypeError(`expected an absolute url where there is no page, got ${url}`);
  }
  const root = new URL(url, base);
  if (!root.pathname.endsWith("/")) root.pathname += "/";
  root.search = root.hash = "";
  return root.href;
}

/** Return a URL below a root, with the parameters that have a value. */
export function buildUrl(root: string, path: string, parameters: { [name: string]: QueryValue } = {}): string {
  const url = new URL(path, root);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}
