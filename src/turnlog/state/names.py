"""Display names of the members of a session: a fold over `session.member`.

Events name their sender by the principal (`actor`), which never changes. The name is for people to read and
proves nothing: guests choose theirs. A `session.member` without a name leaves the name unchanged, so a change
of roles does not remove it.
"""

from dataclasses import dataclass, field

from turnlog.events import Envelope, Payload, SessionMember, UnknownPayload


@dataclass(slots=True)
class MemberNames:
    """The names of members by principal. Members without a name are not in it."""

    names: dict[str, str] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        if isinstance(payload, SessionMember) and payload.name is not None:
            self.names[payload.principal] = payload.name

    def display_name(self, principal: str) -> str:
        return self.names.get(principal, principal)
