/**
 * What people are called: a fold over `session.member`, the same as `turnlog.state.names`.
 *
 * Events name their sender by its principal (`actor`). A name beside it is for people to read and proves nothing:
 * guests choose theirs. A later `session.member` without a name leaves the name as it is.
 */

export class Names {
  names = new Map(); // by principal

  /** Take one event into account. */
  apply({ type, payload }) {
    if (type === "session.member" && payload.name != null) this.names.set(payload.principal, payload.name);
  }

  /** What to show for a principal: its name, or else the principal itself. */
  displayName(principal) {
    return this.names.get(principal) ?? principal;
  }
}
