import type { Fault } from "../events.js";

/** Everything the client throws on purpose. */
export declare class TurnlogError extends Error {}

/** No answer: the network, or the server is away. */
export declare class Unreachable extends TurnlogError {}

/** The server said no. */
export declare class HttpError extends TurnlogError {
  constructor(message: string, status: number, more?: { fault?: Fault | null; retryAfterMs?: number });
  readonly status: number;
  /** What exactly is wrong, if the server told: `details.problems` has a path and a message each. */
  readonly fault: Fault | null;
  readonly retryAfterMs: number;
}

export declare class Invalid extends HttpError {}
export declare class NotSignedIn extends HttpError {}
export declare class Forbidden extends HttpError {}
export declare class NotFound extends HttpError {}
export declare class Conflict extends HttpError {}
export declare class Gone extends HttpError {}
/** The cookie is another person's than the one whom `principal` names. */
export declare class OtherPrincipal extends HttpError {}
export declare class TooMany extends HttpError {}

/** The error of a status. */
export declare function createHttpError(
  status: number,
  message?: string,
  more?: { fault?: Fault | null; retryAfterMs?: number },
): HttpError;
