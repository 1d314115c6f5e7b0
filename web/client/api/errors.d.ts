import type { ErrorInfo } from "../events.js";

/** The base of all errors of the client. */
export declare class TurnlogError extends Error {}

/** No answer from the server. */
export declare class Unreachable extends TurnlogError {}

/** The server refused the request. */
export declare class HttpError extends TurnlogError {
  constructor(message: string, status: number, more?: { fault?: ErrorInfo | null; retryAfterMs?: number });
  readonly status: number;
  /** The server's error object, if it sent one: `details.problems` has a path and a message each. */
  readonly fault: ErrorInfo | null;
  readonly retryAfterMs: number;
}

export declare class Invalid extends HttpError {}
export declare class NotSignedIn extends HttpError {}
export declare class Forbidden extends HttpError {}
export declare class NotFound extends HttpError {}
export declare class Conflict extends HttpError {}
export declare class Gone extends HttpError {}
/** The cookie belongs to another person than `principal`. */
export declare class OtherPrincipal extends HttpError {}
export declare class TooMany extends HttpError {}

/** Return the error of a status. */
export declare function createHttpError(
  status: number,
  message?: string,
  more?: { fault?: ErrorInfo | null; retryAfterMs?: number },
): HttpError;
