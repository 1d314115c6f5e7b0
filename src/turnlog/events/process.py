"""The session, its members and invites, and its processes: the server, model processes, their errors."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from turnlog.events.payload import SYSTEM_ORIGINS, Count, InviteId, Name, Origins, Payload, Role

ProcessKind = Literal["server", "model"]
# One or two sentences, on one line.
CloseReason = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\u0000-\u001f\u007f]+$(?!\n)")]


class ProcessStart(Payload, frozen=True, kw_only=True):
    """A model process started, or a server took over the session. `node` tells servers apart."""

    TYPE: ClassVar = "process.start"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"process": "model", "pid": 4711, "model": "claude-opus-4-6", "demo_mode": True}

    process: ProcessKind
    pid: Count
    model: Name | None = None
    demo_mode: bool = False
    node: Name | None = None


class ProcessEnd(Payload, frozen=True, kw_only=True):
    """A model process or the server ended, and why. The session goes on."""

    TYPE: ClassVar = "process.end"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"process": "model", "reason": "process_crash", "pid": 4711, "exit_code": 137}

    process: ProcessKind
    reason: Literal["user_ended", "inactivity_timeout", "process_crash", "server_shutdown"]
    pid: Count | None = None
    exit_code: int | None = None


class ProcessAuth(Payload, frozen=True, kw_only=True):
    """The sign-in state of a model process changed."""

    TYPE: ClassVar = "process.auth"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"method": "oauth", "needs_setup": False, "expires_in_minutes": 55}

    method: Literal["oauth", "setup_token", "none"]
    needs_setup: bool
    expires_in_minutes: int | None = None


class SessionError(Payload, frozen=True, kw_only=True):
    """A failure that is not the result of a tool call: of a model, a process, or at a limit."""

    TYPE: ClassVar = "session.error"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"code": "turn_timeout", "message": "The turn took over 300 s.", "retriable": True}

    code: Name
    message: Annotated[str, Meta(description="For people: no stack traces, no secrets.")]
    provider_message: Annotated[
        str | None, Meta(description="What the model's provider reported, without secrets.")
    ] = None
    retriable: bool = False
    terminal: bool = False


class SessionMember(Payload, frozen=True, kw_only=True):
    """A principal joined the session, got other roles, or left it: `roles` is empty then.

    The server appends it. The first one is for the principal who created the session.
    """

    TYPE: ClassVar = "session.member"
    ORIGINS: ClassVar[Origins] = frozenset({"system", "app"})
    EXAMPLE: ClassVar = {"principal": "guest_f074b7cb9c6e056b", "roles": ["customer"], "name": "Sarah"}

    principal: Name
    roles: tuple[Role, ...] = ()
    name: Annotated[
        Name | None, Meta(description="The display name; without it the name does not change.")
    ] = None
    invite_id: Annotated[
        InviteId | None,
        Meta(description="The invite that this member used."),
    ] = None


class SessionInvite(Payload, frozen=True, kw_only=True):
    """A member created a link for one person, or invited a principal. The actor is the member who invites.

    The invite is open until a `session.member` or a `session.invite_end` names it.
    """

    TYPE: ClassVar = "session.invite"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {
        "invite_id": "inv_4d7b0f2c9a31e658d0b4a7f1",
        "roles": ["customer"],
        "expires_ms": 1767960000000,
    }

    invite_id: InviteId
    roles: Annotated[tuple[Role, ...], Meta(min_length=1)]
    expires_ms: Annotated[Count, Meta(description="Milliseconds since 1970.")]
    principal: Annotated[
        Name | None,
        Meta(description="The invited principal; without it the invite is a link for one person."),
    ] = None
    as_operator: Annotated[bool, Meta(description="The actor may invite only because of a server role.")] = (
        False
    )
    name: Annotated[
        Name | None, Meta(description="What the inviter calls the invite, to know it in a list.")
    ] = None


class SessionInviteEnd(Payload, frozen=True, kw_only=True):
    """An invite ended without a new member. The actor is the principal who revoked or declined it.

    If a member loses the right to invite, the same append revokes the member's open invites.
    """

    TYPE: ClassVar = "session.invite_end"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"invite_id": "inv_4d7b0f2c9a31e658d0b4a7f1", "reason": "revoked"}

    invite_id: InviteId
    reason: Literal["revoked", "declined", "expired"]


class SessionTitle(Payload, frozen=True, kw_only=True):
    """The session got a title. Before that, its first message is its title."""

    TYPE: ClassVar = "session.title"
    ORIGINS: ClassVar[Origins] = frozenset({"system", "app", "ui"})
    EXAMPLE: ClassVar = {"title": "A trip to Oslo"}

    title: Name


class SessionClose(Payload, frozen=True, kw_only=True):
    """The session was closed. It is the last event: the session accepts no more.

    The write that closes the session appends it, after every turn has ended.
    """

    TYPE: ClassVar = "session.close"
    ORIGINS: ClassVar[Origins] = frozenset({"system", "app"})
    EXAMPLE: ClassVar = {"by": "ada", "reason": "The trip is booked."}

    by: Annotated[Name, Meta(description="The principal who closed it.")]
    reason: Annotated[CloseReason | None, Meta(description="For people: why it was closed.")] = None


EVENTS = (
    ProcessStart,
    ProcessEnd,
    ProcessAuth,
    SessionError,
    SessionMember,
    SessionInvite,
    SessionInviteEnd,
    SessionTitle,
    SessionClose,
)
