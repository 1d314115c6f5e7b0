/**
 * The errors of the client.
 *
 *     TurnlogError
 *     ├── Unreachable         no answer from the server
 *     └── HttpError           the server refused; `status`, and `fault` if it sent one
 *         ├── Invalid         400: the request is wrong; an action's `fault.details.problems` has the paths
 *         ├── NotSignedIn     401
 *         ├── Forbidden       403
 *         ├── NotFound        404: it does not exist, or the caller has no access
 *         ├── Conflict        409: too late, or the name is taken
 *         ├── Gone            410: the cursor cannot be continued
 *         ├── OtherPrincipal  412: the cookie belongs to another person now
 *         └── TooMany         429: retry after `retryAfterMs`
 */

import type { ErrorInfo } from "../events.js";

/** The base of all errors of the client. */
export class TurnlogError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** No answer from the server. */
export class Unreachable extends TurnlogError {}

interface ErrorDetails {
  fault?: ErrorInfo | null;
  retryAfterMs?: number;
}

/** The server refused the request. */
export class HttpError extends TurnlogError {
  readonly status: number;
  /** The server's error object, if it sent one: `details.problems` has a path and a message each. */
  readonly fault: ErrorInfo | null;
  readonly retryAfterMs: number;

  constructor(message: string, status: number, { fault = null, retryAfterMs = 0 }: ErrorDetails = {}) {
    super(message);
    this.status = status;
    this.fault = fault;
    this.retryAfterMs = retryAfterMs;
  }
}

export class Invalid extends HttpError {}
export class NotSignedIn extends HttpError {}
export class Forbidden extends HttpError {}
export class NotFound extends HttpError {}
export class Conflict extends HttpError {}
export class Gone extends HttpError {}
/** The cookie belongs to another person than `principal`. */
export class OtherPrincipal extends HttpError {}
export class TooMany extends HttpError {}

const ERRORS_BY_STATUS = new Map<number, typeof HttpError>([
  [400, Invalid],
  [401, NotSignedIn],
  [403, Forbidden],
  [404, NotFound],
  [409, Conflict],
  [410, Gone],
  [412, OtherPrincipal],
  [429, TooMany],
]);

/** Return the error of a status. */
export function createHttpError(
  status: number,
  message: string = `the server answered ${status}`,
  more: ErrorDetails = {},
): HttpError {
  const Kind = ERRORS_BY_STATUS.get(status) ?? HttpError;
  return new Kind(message, status, more);
}
