/**
 * Requests with the caller's credentials: a token that may expire, or the page's cookie.
 *
 * A token that is a function is asked for when the first request needs it, and again once after a 401. Requests that
 * run at the same time share one renewal. After a second 401 the answer goes to the caller.
 */

/** A token for `Authorization`, or a function that returns a fresh one. */
export type TokenSource = string | (() => string | Promise<string>);

export interface RequestOptions {
  /** The root URL of the server; by default the directory of the page. */
  url?: string;
  /** Without a token the page's cookie authenticates. A function is asked again once after a 401. */
  token?: TokenSource;
  /** The server answers this principal only: a page whose cookie changed gets `OtherPrincipal`. */
  principal?: string;
  /** More headers for every request. */
  headers?: { [name: string]: string };
  /** For `fetch`: whether a page of another origin sends its cookie ("include"). */
  credentials?: RequestCredentials;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
  /** Aborts all requests and closes all streams. */
  signal?: AbortSignal;
}

/** Sends one request with the caller's credentials. */
export type SendRequest = (url: string, request: RequestInit) => Promise<Response>;

class Token {
  #source: TokenSource | undefined;
  #value: Promise<string> | undefined;

  constructor(source: TokenSource | undefined) {
    this.#source = source;
  }

  /** Return the token; undefined without one. */
  current(): Promise<string> | undefined {
    if (this.#source === undefined) return undefined;
    this.#value ??= this.#ask(this.#source);
    return this.#value;
  }

  /** Return another token than the one that was refused; undefined if there is none. */
  async renew(refused: string | undefined): Promise<string | undefined> {
    if (typeof this.#source !== "function") return undefined;
    const before = this.current();
    const isRefused = (await before) === refused;
    // another request may have renewed it already
    if (isRefused && this.#value === before) this.#value = this.#ask(this.#source);
    return this.current();
  }

  #ask(source: TokenSource): Promise<string> {
    const value = Promise.resolve(typeof source === "function" ? source() : source);
    value.catch(() => {
      if (this.#value === value) this.#value = undefined; // the next request asks again
    });
    return value;
  }
}

/** Return the function that sends requests with these options. */
export function createSender(options: RequestOptions): SendRequest {
  const token = new Token(options.token);
  // throws for a text that no header can hold
  new Headers({ ...options.headers, ...authHeaders(textOf(options.token), options.principal) });
  const send = (url: string, request: RequestInit, value: string | undefined): Promise<Response> => {
    const headers = new Headers({ ...options.headers, ...authHeaders(value, options.principal) });
    new Headers(request.headers).forEach((text, name) => headers.set(name, text));
    const { credentials } = options;
    const fetchNow = options.fetch ?? fetch;
    return fetchNow(url, { cache: "no-store", ...(credentials && { credentials }), ...request, headers });
  };
  return async (url, request) => {
    const value = await token.current();
    const response = await send(url, request, value);
    const renewed = response.status === 401 ? await token.renew(value) : undefined;
    if (renewed === undefined) return response;
    await response.body?.cancel();
    return send(url, request, renewed);
  };
}

const textOf = (source: TokenSource | undefined): string | undefined =>
  typeof source === "string" ? source : undefined;

/** Return the headers of a token, and of the principal that the server must check the cookie against (412). */
const authHeaders = (token: string | undefined, principal: string | undefined): { [name: string]: string } => ({
  ...(token && { authorization: `Bearer ${token}` }),
  ...(principal && { "turnlog-principal": encodeURIComponent(principal) }),
});
