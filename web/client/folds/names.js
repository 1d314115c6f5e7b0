/**
 * Folds `session.member` to display names, the same as `turnlog.state.names`.
 *
 * Events identify their sender by its principal (`actor`). A display name proves nothing: guests choose theirs. A
 * later `session.member` without a name keeps the name.
 */

export class Names {
  names = new Map(); // by principal

  apply({ type, payload }) {
    if (type === "session.member" && payload.name != null) this.names.set(payload.principal, payload.name);
  }

  /** Return the name of a principal, or else the principal itself. */
  displayName(principal) {
    return this.names.get(principal) ?? principal;
  }
}
