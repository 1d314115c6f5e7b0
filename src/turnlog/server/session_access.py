"""How routes reach the sessions, which exist only while the server runs.

Starlette's lifespan state is not used: uvicorn runs without the lifespan protocol (the log is opened before
it starts), and an application that Turnlog is mounted in enters the lifespan itself.
"""

from starlette.requests import Request

from turnlog.app import Membership, Sessions
from turnlog.errors import Unavailable
from turnlog.server.auth.authentication import get_identity
from turnlog.server.error_responses import STORE_AWAY_MESSAGE, NotStarted
from turnlog.server.limits.rate_limiter import RateLimiter
from turnlog.server.limits.read_cost import ReadMeter
from turnlog.server.scope_keys import SESSION_KEY


class SessionAccess:
    """The sessions of a running server, and what a request may read of them."""

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self.rate_limiter = rate_limiter
        self._sessions: Sessions | None = None

    @property
    def sessions(self) -> Sessions:
        """Raise `NotStarted` before the lifespan begins and after it ends.

        Raise `Unavailable` while the store is out of reach: another server may reach it.
        """
        if self._sessions is None:
            raise NotStarted(
                "Turnlog has not started: the application it is mounted in must run its lifespan, "
                "`async with turnlog_app.router.lifespan_context(turnlog_app)`"
            )
        if self._sessions.log.reach.is_lost:
            raise Unavailable(STORE_AWAY_MESSAGE)
        return self._sessions

    def set_sessions(self, sessions: Sessions | None) -> None:
        self._sessions = sessions

    async def find_membership(self, request: Request, session_id: str) -> Membership:
        """Return the caller's membership. Raise `NotFound` if there is no such session or membership.

        The access log gets the session id.
        """
        request.scope[SESSION_KEY] = session_id
        return await self.sessions.get_membership(get_identity(request.scope).principal, session_id)

    async def may_read_blob(self, request: Request, membership: Membership, name: str) -> bool:
        """Return whether the member sees an event that names the blob; one who sees all sees every blob."""
        view = membership.event_view
        if membership.visible_channels is None and view.shows_all:
            return True
        meter = self.start_read_meter(request)
        models = await self.sessions.load_read_models(membership, None, ["blobs"], meter.charge)
        return models.blobs.is_visible(name, membership.may_see, view)

    def start_read_meter(self, request: Request) -> ReadMeter:
        """Return the meter of what this request reads. Raise `ReadLimitExceeded` if the budget is used up."""
        meter = ReadMeter(self.rate_limiter, get_identity(request.scope).principal)
        meter.check_budget()
        return meter
