"""Every route of a server, taken from its own description, with a request that it would grant.

A route that is added to the server and not here fails the tests: nobody can forget to attack it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.security.desk import Desk
from tests.support.invitations import redemption
from turnlog.server.console_files import console_routes

PAGE = tuple(route.path for route in console_routes())
BARE = (  # routes that take nothing
    "GET /api/sessions",
    "GET /api/me",
    "GET /api/apps",
    "POST /api/sign-in",
    "POST /api/sign-out",
    "GET /metrics",
    "GET /healthz",
    "GET /openapi.json",
)
# granted to no owner and no operator; tests/e2e/test_record.py and test_workers.py have sources
PART_ROUTES = (
    "POST /api/parts",
    "POST /api/parts/take",
    "POST /api/parts/begin",
    "POST /api/parts/file",
    "POST /api/parts/report",
)
FOR_SOURCES = ("POST /api/record", *PART_ROUTES)
PERSONAL = ("GET /sign-in", "POST /sign-in", "POST /api/invites/accept", "POST /api/invites/decline")
MISSING = "sess_00000000-0000-7000-8000-000000000000"


class Ask(NamedTuple):
    """A request: which route, as the description names it, and with what."""

    route: str
    method: str
    path: str
    body: Any = None
    public: bool = False
    names: bool = False  # a session

    @property
    def takes_json(self) -> bool:
        """Whether it has a body of JSON; one route takes a form."""
        return self.body is not None and not isinstance(self.body, bytes)


class Invited(NamedTuple):
    """A link that is not of the caller's own, and invitations of the caller to accept and to decline."""

    who: str
    link: str
    accept: dict[str, str]
    decline: dict[str, str]


class Known(NamedTuple):
    """What somebody has that others may want."""

    session: str
    turn: str
    call: str
    blob: str
    link: str
    invite: str
    other: Invited


async def invited(at: Desk, who: str) -> Invited:
    """A link and two invitations by another person, who has a session of their own."""
    by = "a:b"  # no test asks as this one
    accept, decline = await at.session(by, "plain"), await at.session(by, "plain")
    link = await at.post(by, "/api/links", {"session": await at.session(by, "plain"), "roles": ["guest"]})
    pairs = []
    for session in (accept, decline):
        body = {"session": session, "principal": who, "roles": ["guest"]}
        pairs.append(
            {"session": session, "invite": (await at.post(by, "/api/members", body)).value["invite"]}
        )
    return Invited(who, link.value["path"], *pairs)


async def own(at: Desk, who: str) -> Known:
    """A session with a turn that is over, a picture, and a call that waits for the page."""
    session = await at.session(who, "plain")
    await at.send(who, session, "picture")
    [result] = await at.told(who, session, "tool.result")
    await at.told(who, session, "agent.end")
    turn = (await at.send(who, session, "confirm sure?"))["turn"]
    [waiting] = await at.told(who, session, "tool.await")
    link = await at.post(who, "/api/links", {"session": session, "roles": ["guest"]})
    call = waiting["payload"]["calls"][0]["call_id"]
    return Known(
        session,
        turn,
        call,
        result["payload"]["images"][0]["src"].rpartition("/")[2],
        link.value["path"],
        link.value["invite"],
        await invited(at, who),
    )


def asks(known: Known) -> Mapping[str, Ask]:
    """A request for each route, by the name of the route; `known` is where the caller wants to be."""
    session, _turn, call, blob, _link, invite, other = known
    note = {"type": "case.note", "payload": {"text": "milk"}}
    answer = {"tool_use_id": call, "content": True}
    said = {"id": "m1", "role": "user", "content": "hi"}
    text = {"type": "text", "text": "hi"}
    member = {"session": session, "principal": "dan", "roles": ["guest"]}
    worker = {"app": "plain", "worker": "worker-1"}
    part = {**worker, "part": "part_1"}
    paths = {  # what is not here is asked for as it is called
        "GET /api/events": f"/api/events?session={session}",
        "GET /api/state": f"/api/state?session={session}",
        "GET /api/log": f"/api/log?session={session}",
        "POST /api/blobs": f"/api/blobs?session={session}&media_type=text/plain",
        "GET /api/blobs/{session}/{digest}": f"/api/blobs/{session}/{blob}",
        "GET /api/documents": f"/api/documents?session={session}",
        "GET /api/invites": f"/api/invites?session={session}",
        "GET /sign-in": other.link,
        "POST /api/chat/{role}": "/api/chat/owner",
        "POST /ag-ui/{app}": "/ag-ui/plain",
        "GET /ag-ui/{app}/capabilities": "/ag-ui/plain/capabilities",
        "GET /ag-ui/{app}/{thread}": f"/ag-ui/plain/{session}",
        "POST /ag-ui/{app}/{thread}/stop": f"/ag-ui/plain/{session}/stop",
        "POST /ai-sdk/{app}/chat": "/ai-sdk/plain/chat",
        "GET /ai-sdk/{app}/chat/{chat}": f"/ai-sdk/plain/chat/{session}",
        "GET /ai-sdk/{app}/chat/{chat}/stream": f"/ai-sdk/plain/chat/{session}/stream",
        "POST /ai-sdk/{app}/chat/{chat}/stop": f"/ai-sdk/plain/chat/{session}/stop",
        "HEAD /v1/stream/{path}": f"/v1/stream/{session}",
        "GET /v1/stream/{path}": f"/v1/stream/{session}",
        "PUT /v1/stream/{path}": "/v1/stream/notes",  # the caller's own; in this order
        "POST /v1/stream/{path}": "/v1/stream/notes",
        "DELETE /v1/stream/{path}": "/v1/stream/notes",
    }
    bodies: dict[str, Any] = {
        "POST /api/events": {"session": session, "events": [note]},
        "POST /api/send": {"session": session, "message": "hi"},
        "POST /api/chat/{role}": {"sessionId": session, "userMessage": "hi"},
        "POST /api/stop": {"session": session},
        "POST /api/record": {"session": session, "recorder": "recorder-1"},
        "POST /api/parts": worker,
        "POST /api/parts/take": {**part, "source": "fake", "version": "1"},
        "POST /api/parts/begin": {**part, "can_read": True, "fresh_agent": {"name": "A"}},
        "POST /api/parts/file": {**part, "file": 0},
        "POST /api/parts/report": {**part, "number": 0},
        "POST /api/sessions": {"app": "plain"},
        "POST /api/sessions/rename": {"session": session, "title": "Another"},
        "POST /api/sessions/close": {"session": session},
        "POST /api/sessions/delete": {"session": session},
        "POST /api/blobs": b"a file",
        "POST /api/members": member,
        "POST /api/links": {"session": session, "roles": ["guest"]},
        "POST /api/invites/revoke": {"session": session, "invite": invite},
        "POST /api/invites/accept": other.accept,
        "POST /api/invites/decline": other.decline,
        "POST /agent/tool_results": {"agent_uuid": session, "tool_results": [answer]},
        "POST /agent/run": {"agent_uuid": session, "user_prompt": "hi"},
        "POST /ag-ui/{app}": {"threadId": session, "runId": "run-1", "messages": [said]},
        "POST /ai-sdk/{app}/chat": {"id": session, "messages": [{**said, "parts": [text]}]},
        "POST /sign-in": redemption(other.link, signed_in_as=other.who)[1],
        # Streams have content of any type: bytes here, so that nobody takes it for a route of JSON alone.
        "PUT /v1/stream/{path}": b"[1]",
        "POST /v1/stream/{path}": b"[2]",
    }
    public = {"GET /sign-in", "POST /sign-in", "GET /healthz", *(f"GET {path}" for path in PAGE)}
    made = {}
    for route in {**paths, **bodies, **dict.fromkeys(BARE), **dict.fromkeys(f"GET {path}" for path in PAGE)}:
        method, _, name = route.partition(" ")
        path, body = paths.get(route, name), bodies.get(route)
        names = "/sign-in" not in route and session in f"{path}{body}"
        made[route] = Ask(route, method, path, body, route in public, names)
    return made


async def every_route(at: Desk, who: str) -> list[Ask]:
    """A request for every route there is, that is granted to who is named; the one that answers a call comes
    before those that would end it."""
    known = asks(await own(at, who))
    described = (await at.get(who, "/openapi.json")).value["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    assert routes | {"GET /openapi.json", *(f"GET {path}" for path in PAGE)} == set(known)
    first = ("GET /api/me", "POST /agent/tool_results", "POST /agent/run")
    last = ("POST /api/sessions/close", "POST /api/sessions/delete")  # they end the session

    def position(ask: Ask) -> int:
        if ask.route in first:
            return first.index(ask.route)
        return len(first) + (last.index(ask.route) + 1 if ask.route in last else 0)

    return sorted(known.values(), key=position)
