"""`POST /api/send` in the words of document 004: commands, speakers, seats, and fields it does not know."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.tables import for_each_row
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import Principal
from turnlog.events import CATALOG, decode_envelope
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.team.office import Office

LYRA = {
    "name": "Lyra",
    "color": "#c9b1ff",
    "colorName": "lavender",
    "gridPosition": 0,
    "hasSoul": True,
    "hasTranscript": False,
}
COMMANDS = [
    ({"type": "user_summon"}, {"type": "user_summon"}),
    ({"type": "user_wake", "agentPayloads": [LYRA]}, {"type": "user_wake", "agentPayloads": [LYRA]}),
    (
        {"type": "user_session_start", "demoMode": True, "previousTranscript": "Once", "artifactCatalog": ""},
        {
            "type": "user_session_start",
            "demoMode": True,
            "hasPreviousTranscript": True,
            "hasArtifactCatalog": False,
        },
    ),
    (
        {"type": "user_session_start", "hasArtifactCatalog": True},
        {
            "type": "user_session_start",
            "demoMode": False,
            "hasPreviousTranscript": False,
            "hasArtifactCatalog": True,
        },
    ),
    ({"type": "user_session_end"}, {"type": "user_session_end"}),
]


@pytest.fixture
def client() -> Iterator[TestClient]:
    known = {hash_token(name): Principal(name) for name in ("ada", "bob", "eve")}
    app = App("office", Agent("Julian", "", Scripted(lambda _: ["Hi."])))
    server = create_app([app], "memory:", auth=BuiltinAuth(b"k" * 32, known))
    with TestClient(server, base_url="http://localhost", headers={"authorization": "Bearer ada"}) as client:
        yield client


def session_of(client: TestClient) -> str:
    return str(client.post("/api/sessions", json={}).json()["session_id"])


def posted(client: TestClient, session: str, body: Any, **headers: str) -> Any:
    response = client.post("/api/send", json={"session": session, **body}, headers=headers)
    assert response.status_code == 202, response.text
    return response.json()


def stored(client: TestClient, session: str, seq: int) -> Any:
    lines = client.get(f"/api/log?session={session}").text.splitlines()
    return next(event for event in map(json.loads, lines) if event.get("seq") == seq)


@for_each_row(("body", "message"), COMMANDS)
def test_send_with_a_command_of_the_document_appends_it(
    client: TestClient, body: dict[str, Any], message: dict[str, Any]
) -> None:
    session = session_of(client)
    answer = posted(client, session, body)
    assert set(answer) == {"eventId", "id"}
    event = stored(client, session, answer["eventId"])
    assert (event["type"], event["id"], event["actor"]) == ("ui.command", answer["id"], "ada")
    envelope = decode_envelope(json.dumps(event).encode())
    [said] = Office().convert(envelope, CATALOG.decode_payload(envelope))
    assert message.items() <= json.loads(said).items()


@for_each_row(
    ("body", "path"),
    [
        ({"type": "user_dance"}, "$.type"),
        ({"type": "user_wake"}, "$.agentPayloads"),
        ({"type": "user_wake", "agentPayloads": [LYRA, {"name": "Orin"}]}, "$.agentPayloads[1]"),
        (
            {"type": "user_wake", "agentPayloads": [{**LYRA, "gridPosition": 9}]},
            "$.agentPayloads[0].gridPosition",
        ),
        ({"type": "user_session_start", "demoMode": "yes"}, "$.demoMode"),
        ({"type": "user_message"}, "$.message"),
        ({"message": " "}, "$.message"),
        ({"message": "Hi", "targetGridPosition": 3}, "$.targetGridPosition"),
        ({"message": "Hi", "targetGridPosition": 9}, "$.targetGridPosition"),
    ],
)
def test_send_with_a_malformed_body_is_refused_with_the_path(
    client: TestClient, body: dict[str, Any], path: str
) -> None:
    response = client.post("/api/send", json={"session": session_of(client), **body})
    assert response.status_code == 400
    assert response.json()["error"].endswith(f"(at {path})")


def test_send_of_a_command_names_no_session_and_gets_the_default_one(client: TestClient) -> None:
    answer = client.post("/api/send", json={"type": "user_summon"}).json()
    assert answer["session"] == client.post("/api/send", json={"message": "Hi"}).json()["session"]


def test_send_of_a_command_under_a_key_happens_once(client: TestClient) -> None:
    session, key = session_of(client), {"idempotency-key": "k1"}
    first = posted(client, session, {"type": "user_summon"}, **key)
    assert posted(client, session, {"type": "user_summon"}, **key) == first
    assert posted(client, session, {"type": "user_summon"})["eventId"] > first["eventId"]


def test_send_ignores_fields_that_it_does_not_know_and_takes_text_for_message(client: TestClient) -> None:
    session = session_of(client)
    body = {"type": "user_message", "text": "Hello", "mood": "happy", "targetAgent": None, "demoMode": None}
    event = stored(client, session, posted(client, session, body)["eventId"])
    assert event["payload"] == {"text": "Hello"}
    strict = client.post("/api/stop", json={"session": session, "mood": "happy"})
    assert strict.status_code == 400, "other routes refuse them"


def test_send_of_a_stranger_is_not_found_whatever_it_sends(client: TestClient) -> None:
    session = session_of(client)
    for body in ({"message": "Hi"}, {"type": "user_summon"}, {"type": "user_session_end"}):
        response = client.post(
            "/api/send", json={"session": session, **body}, headers={"authorization": "Bearer bob"}
        )
        assert response.status_code == 404


@for_each_row(
    ("name", "speaker"),
    [
        ("Ada Lovelace", "Ada Lovelace"),
        (" Ada ", "Ada"),
        ("", None),
        (None, None),
        ("a\nb", None),
        ("x" * 500, None),
    ],
)
def test_send_shows_the_name_of_the_speaker_and_records_the_principal(
    client: TestClient, name: str | None, speaker: str | None
) -> None:
    session = session_of(client)
    seq = posted(client, session, {"message": "Hi", "speakerName": name})["eventId"]
    event = stored(client, session, seq)
    assert (event["payload"].get("speaker"), event["actor"]) == (speaker, "ada")


def test_send_does_not_show_the_name_of_another_member(client: TestClient) -> None:
    session = session_of(client)
    join(client, session)
    for name, speaker in [("bob", None), ("BOB", None), ("ada", "ada"), ("eve", "eve")]:
        seq = posted(client, session, {"message": "Hi", "speakerName": name})["eventId"]
        assert stored(client, session, seq)["payload"].get("speaker") == speaker, name


def join(client: TestClient, session: str) -> None:
    """Ada invites Bob, and he joins."""
    body = {"session": session, "principal": "bob", "roles": ["owner"]}
    invite = client.post("/api/members", json=body).json()["invite"]
    accepted = client.post(
        "/api/invites/accept",
        json={"session": session, "invite": invite},
        headers={"authorization": "Bearer bob"},
    )
    assert accepted.status_code == 202, accepted.text
