"""The vocabulary `server`: what all servers on one log must know of people who sign in and out.

These events are in a session of their own, which no member can read. The server alone emits them.
"""

from typing import Annotated, ClassVar

from msgspec import Meta

from turnlog.events.catalog import Vocabulary
from turnlog.events.payload import SYSTEM_ORIGINS, Count, Name, OpaqueId, Origins, Payload


class ServerCodeUse(Payload, frozen=True, kw_only=True):
    """A person has signed in with the code of a sign-in link. No server accepts it again."""

    TYPE: ClassVar = "server.code_use"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"number": "kq3x8Zb1", "until": 1770000000}

    number: OpaqueId
    until: Annotated[Count, Meta(description="When the code expires, in seconds since 1970.")]


class ServerSignOut(Payload, frozen=True, kw_only=True):
    """A person has signed out. No server accepts the cookie again."""

    TYPE: ClassVar = "server.sign_out"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"principal": "ada", "cookie_id": "Zm9vYmFy", "until": 1770000000}

    principal: Name
    cookie_id: Annotated[
        OpaqueId | None, Meta(description="Without it: all cookies that were made up to `made_ms`.")
    ] = None
    made_ms: Count = 0
    until: Annotated[Count, Meta(description="When all these cookies have expired, in seconds since 1970.")]


SERVER = Vocabulary("server", [ServerCodeUse, ServerSignOut])
