"""What an application brings of its own: dialects that readers ask for by name, and a store."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from turnlog.agents import Agent, Scripted
from turnlog.app import LOCAL, App
from turnlog.errors import CallerError
from turnlog.events import AssistantMessage, Envelope, Payload, UnknownPayload
from turnlog.log import MemoryStore
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.vocabularies import DIALECTS
from turnlog.wire.dialects.base import DialectOptions, HistoryLookup
from turnlog.wire.sse import Decoder

GUIDE = Agent("Guide", "Be brief.", Scripted(lambda _: ["Hello ", "there."]))


class Loud:
    """What agents say, in capitals."""

    idle = True

    def __init__(self, options: DialectOptions, history: HistoryLookup) -> None:
        pass

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        return [payload.text.upper().encode()] if isinstance(payload, AssistantMessage) else []

    def close(self) -> list[bytes]:
        return [b"BYE"]


class Quiet(Loud):
    pass


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> Iterator[TestClient]:
    apps = [App("desk", GUIDE, dialects={"loud": Loud}), App("shop", GUIDE, dialects={"loud": Loud})]
    server = create_app(apps, store, auth=BuiltinAuth(b"k" * 32, {hash_token("ada"): LOCAL}))
    headers = {"authorization": "Bearer ada"}
    with TestClient(server, base_url="http://localhost", headers=headers) as client:
        yield client


def test_a_turn_is_told_in_an_applications_own_dialect(client: TestClient, store: MemoryStore) -> None:
    answer = client.post("/agent/run?dialect=loud", json={"user_prompt": "Hi"})
    said, bye = Decoder().feed(answer.content)
    assert (said.data, bye.data) == ("HELLO THERE.", "BYE")
    session, turn = answer.headers["turnlog-session"], answer.headers["turnlog-turn"]
    asked = {"session": session, "dialect": "loud", "turn": turn}
    assert Decoder().feed(client.get("/api/events", params=asked).content) == [said, bye]
    assert [head.session_id for head in store.sessions()] == [session]


def test_who_asks_for_another_is_told_which_there_are(client: TestClient) -> None:
    session = client.post("/api/sessions", json={"app": "desk"}).json()["session_id"]
    answer = client.get("/api/events", params={"session": session, "dialect": "shrill"})
    assert answer.status_code == 400
    assert "agentic, ag-ui, ai-sdk, office, loud, got 'shrill'" in answer.json()["error"]
    [described] = [
        one["schema"].get("description", "") + one.get("description", "")
        for one in client.get("/openapi.json").json()["paths"]["/api/events"]["get"]["parameters"]
        if one["name"] == "dialect"
    ]
    assert described.endswith("office, loud")


@pytest.mark.parametrize("name", [*DIALECTS.names, "", "Loud", "a b", "-a", "a" * 65])
def test_a_name_is_a_word_that_turnlog_has_not(name: str) -> None:
    with pytest.raises(CallerError, match="expected a dialect's name"):
        App("desk", GUIDE, dialects={name: Loud})


def test_one_name_is_one_dialect_of_a_server() -> None:
    apps = [App("desk", GUIDE, dialects={"loud": Loud}), App("shop", GUIDE, dialects={"loud": Quiet})]
    with pytest.raises(CallerError, match="one dialect of the name loud, got another from app shop"):
        create_app(apps, "memory:")
