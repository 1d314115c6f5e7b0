"""What people are called: a fold over `session.member`. Pure.

Events name their sender by its principal (`actor`), which never changes. A member may have a name beside it,
which is for people to read and proves nothing: guests choose theirs. A later `session.member` without a name
leaves the name as it is, so that a change of roles does not take it away.
"""

from dataclasses import dataclass, field

from turnlog.events import Envelope, Payload, SessionMember, UnknownPayload


@dataclass(slots=True)
class MemberNames:
    """The names of members by principal; those without a name are not in it."""

    names: dict[str, str] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one event into account."""
        if isinstance(payload, SessionMember) and payload.name is not None:
            self.names[payload.principal] = payload.name

    def display_name(self, principal: str) -> str:
        """What to show for a principal: its name, or else the principal itself."""
        return self.names.get(principal, principal)
