/**
 * Folds `session.member` to display names, the same as `turnlog.state.names`.
 *
 * Events identify their sender by its principal (`actor`). A display name proves nothing: guests choose theirs. A
 * later `session.member` without a name keeps the name.
 */

import type { Payloads } from "../events.js";
import type { AnyEvent } from "./event-text.js";

export class Names {
  /** By principal; members without a name are missing. */
  readonly names: Map<string, string> = new Map();

  apply({ type, payload }: AnyEvent): void {
    if (type !== "session.member") return;
    const { principal, name } = payload as Payloads["session.member"];
    if (name != null) this.names.set(principal, name);
  }

  /** Return the name of a principal, or else the principal itself. */
  displayName(principal: string): string {
    return this.names.get(principal) ?? principal;
  }
}
