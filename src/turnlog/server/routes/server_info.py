"""`/api/me`, `/api/apps`, `/metrics`, `/healthz`: the caller, the applications, the state of the server."""

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import turnlog
from turnlog.app import App, Membership
from turnlog.app.membership import is_guest
from turnlog.errors import Forbidden, Unavailable
from turnlog.server.auth.authentication import get_identity
from turnlog.server.metrics import Metrics
from turnlog.server.openapi import Operation, get_route
from turnlog.server.responses import json_response
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.event_stream import EventStreamRoute
from turnlog.server.visible_apps import apps_for, find_guest_memberships

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4"


class MeResponse(msgspec.Struct, omit_defaults=True):
    """The caller, its server roles, and the applications: of a guest those of its sessions.

    A guest makes no sessions: `session` is the one that it was invited to.
    """

    name: str
    roles: list[str]
    apps: list[str]
    may_create_sessions: bool
    session: str | None = None


class AppInfo(msgspec.Struct):
    """An application. `types` are its own events; a `process` takes commands as well as messages."""

    name: str
    title: str
    guide: str
    tries: list[str]
    types: list[str]
    agents: list[str]
    channels: list[str]
    process: bool


class AppsResponse(msgspec.Struct):
    """The applications; the first one is the default."""

    apps: list[AppInfo]


class HealthResponse(msgspec.Struct):
    """The status of the server and its version."""

    status: str
    version: str


class ServerInfoRoutes:
    """The routes about the caller and the server."""

    def __init__(
        self,
        access: SessionAccess,
        metrics: Metrics,
        event_stream: EventStreamRoute,
        is_draining: Callable[[], bool],
    ) -> None:
        self._access = access
        self._metrics = metrics
        self._event_stream = event_stream
        self._is_draining = is_draining

    def operations(self) -> list[Operation]:
        return [
            get_route("/api/me", self.get_me, "The caller.", MeResponse),
            get_route("/api/apps", self.list_apps, "The applications.", AppsResponse),
            *self.worker_operations(),
        ]

    def worker_operations(self) -> list[Operation]:
        """Return the routes that a worker has, too."""
        return [
            get_route("/metrics", self.get_metrics, "Counters for Prometheus.", media_type="text/plain"),
            get_route(
                "/healthz",
                self.check_health,
                "Whether the server works.",
                HealthResponse,
                public=True,
            ),
        ]

    async def get_me(self, request: Request) -> Response:
        principal = get_identity(request.scope).principal
        sessions = self._access.sessions
        session_id = None
        memberships = await find_guest_memberships(sessions, principal)
        if memberships:
            session_id = memberships[0].session_id

        me = MeResponse(
            principal.name,
            sorted(principal.server_roles),
            [app.name for app in apps_for(sessions, memberships)],
            not is_guest(principal),
            session_id,
        )
        return json_response(me)

    async def list_apps(self, request: Request) -> Response:
        principal = get_identity(request.scope).principal
        sessions = self._access.sessions
        memberships = await find_guest_memberships(sessions, principal)
        infos = [
            make_app_info(app, suggestions_for(app, memberships), event_types_for(app, memberships))
            for app in apps_for(sessions, memberships)
        ]
        return json_response(AppsResponse(infos))

    async def get_metrics(self, request: Request) -> Response:
        if not get_identity(request.scope).principal.is_operator:
            raise Forbidden("only operators may read the metrics")
        health = self._access.sessions.log.health
        text = self._metrics.render(self._event_stream.projection_lags(), health)
        return Response(text, media_type=METRICS_MEDIA_TYPE)

    async def check_health(self, _: Request) -> Response:
        if self._access.sessions.log.health.is_failing:
            raise Unavailable("the log cannot be written: the last write failed")
        if self._is_draining():
            raise Unavailable("the server is being stopped; use another one")
        return json_response(HealthResponse("ok", turnlog.__version__))


def suggestions_for(app: App, guest_memberships: list[Membership] | None) -> list[str]:
    """Return the suggested messages, which are meant for the first channel.

    None is a caller who may make sessions. A guest gets them as a member of that channel only.
    """
    if guest_memberships is not None:
        first_channel = next(iter(app.channels), None)
        if not any(one.app is app and one.channel == first_channel for one in guest_memberships):
            return []
    return list(app.suggestions)


def event_types_for(app: App, guest_memberships: list[Membership] | None) -> list[str]:
    """Return the application's own events: all, or those that a guest sees in one of its sessions."""
    if guest_memberships is None:
        return list(app.event_types)
    views = [one.event_view for one in guest_memberships if one.app is app]
    return [name for name in app.event_types if any(view.shows_app_type(name) for view in views)]


def make_app_info(app: App, suggestions: list[str], event_types: list[str]) -> AppInfo:
    return AppInfo(
        app.name,
        app.title,
        app.guide,
        suggestions,
        event_types,
        list(app.agent_names),
        list(app.channels),
        app.runtime.takes_commands,
    )
