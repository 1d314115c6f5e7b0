"""The errors of Turnlog, split by who is at fault.

    TurnlogError
    ├── CallerError          the program that called us is wrong
    │   ├── InvalidEvent     an event that breaks the vocabulary; carries the JSON path
    │   ├── UnknownType      a type that no vocabulary declares
    │   ├── Forbidden        who asks is known and may not do this
    │   ├── NotFound         a session, agent or call that is not there
    │   ├── Conflict         the log moved on, or the id is taken by another event
    │   ├── LimitReached     there are as many of something as there may be
    │   ├── Fenced           a newer writer has taken over
    │   ├── SessionClosed    the session takes no more events
    │   └── RuleError        a rule of the application failed; carries which
    │       └── RulesDidNotConverge   the rules do not reach a fixed point
    ├── PeerError            what came from outside is wrong
    │   └── BadInput         JSON that `events/strict_json` refuses; carries the JSON path
    └── StoreError           the store cannot do its work
        ├── SessionDamaged   a part of a session is lost; carries which
        └── Unavailable      the log, or the follower of a session, has stopped

A message says what was expected, what came and where, with at most 80 characters of the input.
"""

MAX_QUOTE_CHARS = 80  # enough to recognise the input, too little to fill a log


def quote(text: object) -> str:
    """The input as it may appear in a message: one line, at most 80 characters."""
    shown = repr(text)
    return shown if len(shown) <= MAX_QUOTE_CHARS else shown[: MAX_QUOTE_CHARS - 1] + "…"


class TurnlogError(Exception):
    """Everything Turnlog raises on purpose."""


class CallerError(TurnlogError):
    """The calling program is wrong; the same call will fail again."""


class PeerError(TurnlogError):
    """What came from outside is wrong."""


class StoreError(TurnlogError):
    """The store cannot do its work; the call may succeed later."""


class InvalidEvent(CallerError):
    """An event that breaks the vocabulary."""

    def __init__(self, problem: str, path: str = "$") -> None:
        super().__init__(f"{problem} (at {path})")
        self.problem = problem
        self.path = path


class UnknownType(CallerError):
    """A type that no vocabulary declares."""


class Forbidden(CallerError):
    """Who asks is known and may not do this."""


class NotFound(CallerError):
    """A session, agent or call that is not there."""


class Conflict(CallerError):
    """The log is not where the caller expected it, or the id is taken; `last` is its real last seq."""

    def __init__(self, problem: str, last: int) -> None:
        super().__init__(f"{problem}; the last seq is {last}")
        self.last = last


class LimitReached(CallerError):
    """There are as many of something as there may be; one has to go before another comes."""


class Fenced(CallerError):
    """A newer writer has taken over the session; this one must stop."""


class SessionClosed(CallerError):
    """The session is closed and takes no more events."""


class RuleError(CallerError):
    """Rules of an application that cannot be followed, each named once."""

    code = "rule_failed"

    def __init__(self, problem: str, *rules: str) -> None:
        super().__init__(problem)
        self.rules = tuple(dict.fromkeys(rules))


class RulesDidNotConverge(RuleError):
    """Rules that kept firing."""

    code = "rules_unsettled"

    def __init__(self, rule_names: list[str], rounds: int) -> None:
        named = ", ".join(dict.fromkeys(rule_names))
        super().__init__(
            f"expected the rules to settle in {rounds} rounds, got no end of {named}", *rule_names
        )


class SessionDamaged(StoreError):
    """A part of a session is lost: `first` to `last`. The rest stays readable."""

    def __init__(self, session_id: str, first: int, last: int, problem: str) -> None:
        place = f" at seq {first} to {last}" if first >= 0 else ""  # below 0: the session's own record
        super().__init__(f"{session_id} is damaged{place}: {problem}")
        self.session_id = session_id
        self.first = first
        self.last = last
        self.problem = problem


class Unavailable(StoreError):
    """The log is closed, or a session has no follower: the same request succeeds after a restart."""


class BadInput(PeerError):
    """JSON from outside that the gate refuses."""

    def __init__(self, problem: str, path: str = "$") -> None:
        super().__init__(f"{problem} (at {path})")
        self.problem = problem
        self.path = path
