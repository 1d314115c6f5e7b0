import type { Fault } from "../events.js";

/** Everything the client throws on purpose. */
export declare class TurnlogError extends Error {}

/** No answer: the network, or the server is away. */
export declare class Unreachable extends TurnlogError {}

/** The server said no. */
export declare class Refused extends TurnlogError {
  constructor(message: string, status: number, more?: { fault?: Fault | null; retryAfterMs?: number });
  readonly status: number;
  /** What exactly is wrong, if the server told: `details.problems` has a path and a message each. */
  readonly fault: Fault | null;
  readonly retryAfterMs: number;
}

export declare class Invalid extends Refused {}
export declare class NotSignedIn extends Refused {}
export declare class Forbidden extends Refused {}
export declare class NotFound extends Refused {}
export declare class Conflict extends Refused {}
export declare class Gone extends Refused {}
/** The cookie is another person's than the one whom `principal` names. */
export declare class OtherPrincipal extends Refused {}
export declare class TooMany extends Refused {}

/** The error of a status. */
export declare function refusal(
  status: number,
  message?: string,
  more?: { fault?: Fault | null; retryAfterMs?: number },
): Refused;
