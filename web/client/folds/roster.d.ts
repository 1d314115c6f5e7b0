import type { Team } from "../api/client.js";
import type { Envelope } from "../events.js";

/** The team of each channel on its nine seats. */
export declare class Roster {
  apply(event: Envelope<string, any>): void;
  report(): Team[];
}
