"""Who may do what: every route, dialect and filter, for everyone who may come to the server."""

import itertools
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import jwt
import pytest

from tests.security.apps import counter, plain
from tests.security.desk import Answer, Desk, bearer, desk, run
from tests.security.routes import PART_ROUTES, PERSONAL, Ask, every_route
from tests.support.invitations import FORM, redemption
from turnlog.app import App, Membership, Principal, sessions
from turnlog.log import Log, SessionRecord
from turnlog.server.auth.jwt import JwtTokens
from turnlog.server.streaming.streams import StreamRegistry

SECRET = b"a secret that the provider and the server share"
GRANTED = 200
DIALECTS = ("turnlog", "blocks", "blocks-xml", "blocks-raw", "office", "agentic")
FILTERS = ("", "&types=ui,assistant", "&depth=0", "&depth=1&types=tool", "&after=0", "&turn={turn}")
WRITES = (
    "POST /api/send",
    "POST /api/chat/{role}",
    "POST /api/stop",
    "POST /agent/run",
    "POST /ag-ui/{app}",
    "POST /ag-ui/{app}/{thread}/stop",
    "POST /ai-sdk/{app}/chat",
    "POST /ai-sdk/{app}/chat/{chat}/stop",
    "POST /api/blobs",
)
MANAGES = (
    "POST /api/members",
    "POST /api/links",
    "GET /api/invites",
    "POST /api/invites/revoke",
    "POST /api/sessions/rename",
    "POST /api/sessions/close",
    "POST /api/sessions/delete",
)
PEOPLE = ("owner", "operator", "executor", "source", "member", "guest", "stranger", "removed", "expired")


def expired_token() -> dict[str, str]:
    claims = {"sub": "zoe", "aud": "turnlog", "iss": "https://id.example", "exp": time.time() - 60}
    return {"authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}


class Crowd:
    """Everyone who may come, by the name of the case, with the headers that say who they are."""

    def __init__(self, at: Desk) -> None:
        self._at = at
        self.headers: dict[str, Mapping[str, str]] = {}

    async def come(self, session: str, role: str) -> None:
        """Make the members and former members of ada's session."""
        at = self._at
        await at.enrol("ada", session, "bob", role)
        await at.enrol("ada", session, "a", role)
        await at.enrol("ada", session, "a")
        link = await at.post("ada", "/api/links", {"session": session, "roles": [role]})
        path, body = redemption(link.value["path"])
        redeemed = await at.ask(None, "POST", path, body, {"content-type": FORM})
        self.headers = {
            "owner": bearer("ada"),
            "operator": bearer("root"),
            "executor": bearer("worker"),
            "source": bearer("bot"),
            "member": bearer("bob"),
            "guest": {"cookie": redeemed.header("set-cookie").partition(";")[0]},
            "stranger": bearer("cyd"),
            "removed": bearer("a"),
            "expired": expired_token(),
        }

    async def read(self, who: str, ask: Ask) -> Answer:
        """Read a stream to its end."""
        return await self._at.call(None, ask.method, ask.path, None, dict(self.headers[who])).end()

    async def ask(self, who: str, ask: Ask) -> Answer:
        headers = {**self.headers[who], **({"content-type": FORM} if ask.path == "/sign-in" else {})}
        return await self._at.ask(None, ask.method, ask.path, ask.body, headers)


def expected(who: str, ask: Ask) -> int:
    """Return the status that a route must answer; GRANTED stands for every success."""
    if ask.route == "POST /sign-in":  # the page was shown to ada
        return GRANTED if who == "owner" else 409
    if ask.public:
        return GRANTED
    if who == "expired":
        return 401
    if ask.route in PERSONAL:  # an invitation of ada's
        return GRANTED if who == "owner" else 404
    if ask.route == "GET /metrics":
        return GRANTED if who == "operator" else 403
    if ask.route in PART_ROUTES:  # for the server role source alone; the agents of this one are at the server
        return 404 if who == "source" else 403
    if ask.route in ("POST /api/sessions", "PUT /v1/stream/{path}"):
        return 403 if who == "guest" else GRANTED
    if who == "guest" and ask.path == "/v1/stream/notes":
        return 404  # it has made none
    return expected_for_session(who, ask)


def expected_for_session(who: str, ask: Ask) -> int:
    """Return the status of a route that may name a session."""
    if not ask.names:
        return GRANTED
    if who in ("stranger", "removed"):
        return 404
    if ask.route == "POST /api/record":  # for the server role source alone
        return GRANTED if who == "source" else 403
    return GRANTED if who in ("owner", "operator") else expected_inside(who, ask)


def expected_inside(who: str, ask: Ask) -> int:
    """Return the status for who is in the session and does not own it."""
    if ask.route in MANAGES:
        return 403
    if ask.route == "POST /api/chat/{role}":  # the role that is asked for is the owner's
        return 404
    if ask.route == "GET /api/blobs/{session}/{digest}" and who not in ("executor", "source"):
        return 404  # a picture of a tool
    if who in ("executor", "source") and ask.route in WRITES:
        return 403
    if who in ("executor", "source") and ask.method == "POST":
        return 400  # an event of the application, or an answer to a call of the page
    return GRANTED


def matches(answer: Answer, status: int) -> bool:
    return 200 <= answer.status < 400 if status == GRANTED else answer.status == status


@pytest.mark.parametrize("who", PEOPLE)
def test_every_route_grants_and_refuses_as_the_table_says(who: str) -> None:
    async def scenario() -> None:
        provider = JwtTokens(SECRET, ["HS256"], "turnlog", "https://id.example")
        async with desk(plain, verify=provider) as at:
            asks = await every_route(at, "ada")
            session = next(ask.body["session"] for ask in asks if ask.route == "POST /api/stop")
            crowd = Crowd(at)
            await crowd.come(session, "guest")

            wrong = []
            for ask in sorted(asks, key=lambda ask: ask.route == "POST /api/sign-out"):  # it ends the cookie
                answer = await crowd.ask(who, ask)
                if not matches(answer, expected(who, ask)):
                    wrong.append((ask.route, answer.status, expected(who, ask), answer.body[:80]))
            assert len(asks) > 20
            assert wrong == []

    run(scenario())


SECRET_WORD = "nine-hundred-is-the-floor"
SEES_THE_SELLER = {"owner": True, "operator": True, "executor": True, "seller": True, "buyer": False}


@asynccontextmanager
async def closed_market(logs: list[Log]) -> AsyncIterator[tuple[Crowd, str, str]]:
    """A session of ada's with a buyer and a seller, who has said a word in its channel; it is closed, so that
    every stream of it comes to an end."""
    provider = JwtTokens(SECRET, ["HS256"], "turnlog", "https://id.example")
    async with desk(counter, verify=provider) as at:
        session = await at.session("ada")
        await at.enrol("ada", session, "cyd", "seller")
        turn = (await at.send("cyd", session, f"say {SECRET_WORD}"))["turn"]
        await at.told("ada", session, "agent.end")
        crowd = Crowd(at)
        await crowd.come(session, "buyer")
        crowd.headers |= {"seller": bearer("cyd"), "buyer": bearer("bob"), "stranger": bearer("a:b")}
        await logs[-1].close_session(session)
        yield crowd, session, turn


def streams(session: str, turn: str) -> Iterator[Ask]:
    for dialect, query in itertools.product(DIALECTS, FILTERS):
        path = f"/api/events?session={session}&dialect={dialect}" + query.format(turn=turn)
        yield Ask("GET /api/events", "GET", path, names=True)


async def read_streams(crowd: Crowd, who: str, session: str, turn: str) -> list[tuple[str, int, bool]]:
    """Return every stream with its status and whether the seller's word was in it."""
    found = []
    for ask in streams(session, turn):
        answer = await crowd.read(who, ask)
        found.append((ask.path, answer.status, SECRET_WORD.encode() in answer.body))
    return found


@pytest.mark.parametrize("who", ["stranger", "removed", "expired"])
def test_no_dialect_or_filter_lets_in_who_is_no_member(who: str, kept: list[Log]) -> None:
    async def scenario() -> None:
        async with closed_market(kept) as (crowd, session, turn):
            found = await read_streams(crowd, who, session, turn)
            assert {status for _, status, _ in found} == {401 if who == "expired" else 404}
            assert not any(told for _, _, told in found)

    run(scenario())


@pytest.mark.parametrize("who", SEES_THE_SELLER)
def test_every_dialect_and_filter_tells_a_channel_to_who_sees_it_only(who: str, kept: list[Log]) -> None:
    async def scenario() -> None:
        async with closed_market(kept) as (crowd, session, turn):
            found = await read_streams(crowd, who, session, turn)
            assert len(found) == len(DIALECTS) * len(FILTERS)
            told = [path for path, _, heard in found if heard]
            assert bool(told) == SEES_THE_SELLER[who]
            if SEES_THE_SELLER[who]:
                assert {status for _, status, _ in found} == {200}

    run(scenario())


def test_control_a_seat_for_everyone_lets_everyone_in(
    kept: list[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def always(*_: object) -> bool:
        return True

    async def scenario() -> None:
        monkeypatch.setattr(sessions, "membership_of", owner_seat)
        monkeypatch.setattr(StreamRegistry, "is_still_allowed", always)
        async with closed_market(kept) as (crowd, session, turn):
            for who in ("stranger", "removed", "buyer"):
                assert any(told for _, _, told in await read_streams(crowd, who, session, turn)), who

    run(scenario())


def owner_seat(principal: Principal, head: SessionRecord, app: App) -> Membership:
    return Membership(head, app, principal, frozenset({"owner"}))
