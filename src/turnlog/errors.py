"""The errors of Turnlog, grouped by who is at fault: the caller, a peer, or the store.

    TurnlogError
    ├── CallerError          the calling program is wrong
    │   ├── InvalidEvent     an event breaks the vocabulary; has the JSON path
    │   ├── UnknownType      no vocabulary declares the type
    │   ├── Forbidden        the principal may not do this
    │   ├── NotFound         the session, agent or call does not exist
    │   ├── Conflict         the log is not at the expected seq, or another event has the id
    │   ├── LimitReached     a limit on the number of something is reached
    │   ├── Fenced           a newer writer owns the session
    │   ├── SessionClosed    the session is closed
    │   └── RuleError        a rule of the application failed; has the names of the rules
    │       └── RulesDidNotConverge   the rules do not reach a fixed point
    ├── PeerError            input from outside is wrong
    │   └── BadInput         JSON that `events/strict_json` refuses; has the JSON path
    └── StoreError           the store failed
        ├── SessionDamaged   a part of a session is lost; has its first and last seq
        ├── StoreAway        the store does not answer; the same call may be repeated
        └── Unavailable      the log, or the follower of a session, has stopped

A message says what was expected, what was found and where, with at most 80 characters of the input.
"""

MAX_QUOTE_CHARS = 80  # enough to recognise the input, too few to fill a log file


def quote(text: object) -> str:
    """Return the `repr` of an input for a message: one line, at most 80 characters."""
    line = repr(text)
    if len(line) <= MAX_QUOTE_CHARS:
        return line
    return line[: MAX_QUOTE_CHARS - 1] + "…"


class TurnlogError(Exception):
    """The base of all errors that Turnlog raises."""


class CallerError(TurnlogError):
    """The calling program is wrong. The same call will fail again."""


class PeerError(TurnlogError):
    """Input from outside is wrong."""


class StoreError(TurnlogError):
    """The store failed. The same call may succeed later."""


class InvalidEvent(CallerError):
    """An event that breaks the vocabulary."""

    def __init__(self, problem: str, path: str = "$") -> None:
        super().__init__(f"{problem} (at {path})")
        self.problem = problem
        self.path = path


class UnknownType(CallerError):
    """No vocabulary declares the type."""


class Forbidden(CallerError):
    """The principal is known and may not do this."""


class NotFound(CallerError):
    """The session, agent or call does not exist."""


class Conflict(CallerError):
    """The log is not at the expected seq, or another event has the id. `last` is the log's last seq."""

    def __init__(self, problem: str, last: int) -> None:
        super().__init__(f"{problem}; the last seq is {last}")
        self.last = last


class LimitReached(CallerError):
    """A limit on the number of something is reached; one must be removed before another is added."""


class Fenced(CallerError):
    """A newer writer owns the session. This one must stop."""


class SessionClosed(CallerError):
    """The session is closed and accepts no more events."""


class RuleError(CallerError):
    """Rules of an application failed. `rules` are their names, each once."""

    code = "rule_failed"

    def __init__(self, problem: str, *rules: str) -> None:
        super().__init__(problem)
        self.rules = tuple(dict.fromkeys(rules))


class RulesDidNotConverge(RuleError):
    """Rules still matched after the last round."""

    code = "rules_unsettled"

    def __init__(self, rule_names: list[str], rounds: int) -> None:
        names = ", ".join(dict.fromkeys(rule_names))
        super().__init__(f"the rules did not settle in {rounds} rounds; still matching: {names}", *rule_names)


class SessionDamaged(StoreError):
    """A part of a session is lost: seq `first` to `last`. The rest can be read."""

    def __init__(self, session_id: str, first: int, last: int, problem: str) -> None:
        # Below 0: the session's own record is damaged.
        seqs = f" at seq {first} to {last}" if first >= 0 else ""
        super().__init__(f"{session_id} is damaged{seqs}: {problem}")
        self.session_id = session_id
        self.first = first
        self.last = last
        self.problem = problem


class StoreAway(StoreError):
    """The store on another machine does not answer, or has not said whether it has committed."""


class Unavailable(StoreError):
    """The log is closed, or a session has no follower. The same request succeeds after a restart."""


class BadInput(PeerError):
    """JSON from outside is not accepted."""

    def __init__(self, problem: str, path: str = "$") -> None:
        super().__init__(f"{problem} (at {path})")
        self.problem = problem
        self.path = path
