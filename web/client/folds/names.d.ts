import type { Envelope } from "../events.js";

/** What people are called. */
export declare class Names {
  /** By principal; members without a name are not in it. */
  readonly names: ReadonlyMap<string, string>;
  apply(event: Envelope<string, any>): void;
  /** What to show for a principal: its name, or else the principal itself. */
  displayName(principal: string): string;
}
