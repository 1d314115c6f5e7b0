import type { Team } from "../api/client.js";
import type { Envelope } from "../events.js";

/** Folds events to the team of each channel. */
export declare class Roster {
  apply(event: Envelope<string, any>): void;
  report(): Team[];
}
