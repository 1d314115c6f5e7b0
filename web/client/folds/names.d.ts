import type { Envelope } from "../events.js";

/** Folds `session.member` to display names. */
export declare class Names {
  /** By principal; members without a name are missing. */
  readonly names: ReadonlyMap<string, string>;
  apply(event: Envelope<string, any>): void;
  /** Return the name of a principal, or else the principal itself. */
  displayName(principal: string): string;
}
