"""What the server tells about the applications it serves."""

from typing import Any

from starlette.testclient import TestClient

from turnlog.agents import Agent, Scripted
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.app import LOCAL, App, Principal
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog_examples.tour import make_app

MIND = Scripted(lambda messages: ["Yes."])
DESKS = {
    "staff": Agent("Clerk", "", MIND),
    "guest": Agent("Host", "", MIND, agents=[Agent("Cook", "", MIND)]),
}
APPS = [
    App("desk", DESKS, title="The desk", guide="# Come in", suggestions=("Good day", "Good night")),
    App("office", ClaudeCode(name="Julian")),
    make_app(),
]
PEOPLE = {"ada": Principal("ada"), "root": LOCAL}
TOKENS = {hash_token(name): principal for name, principal in PEOPLE.items()}


def told(who: str, path: str = "/api/apps") -> Any:
    server = create_app(APPS, "memory:", auth=BuiltinAuth(b"k" * 32, TOKENS))
    with TestClient(server, base_url="http://localhost") as client:
        return client.get(path, headers={"authorization": f"Bearer {who}"}).json()


def test_an_application_describes_itself() -> None:
    desk = told("ada")["apps"][0]
    assert desk == {
        "name": "desk",
        "title": "The desk",
        "guide": "# Come in",
        "tries": ["Good day", "Good night"],
        "types": [],
        "agents": ["Clerk", "Host", "Cook"],
        "channels": ["staff", "guest"],
        "process": False,
    }


def test_one_without_a_title_goes_by_its_name() -> None:
    assert [app["title"] for app in told("ada")["apps"]] == ["The desk", "office", "tour"]


def test_which_one_is_a_process_and_which_types_are_its_own() -> None:
    apps = {app["name"]: app for app in told("root")["apps"]}
    assert [name for name, app in apps.items() if app["process"]] == ["office"]
    assert (apps["office"]["agents"], apps["tour"]["types"]) == (["Julian"], ["tour.note_trip"])


def test_a_guest_is_told_what_is_worth_saying_in_its_own_channel() -> None:
    names = {"ada": Principal("ada"), "one": Principal("guest_1"), "two": Principal("guest_2")}
    known = {hash_token(name): principal for name, principal in names.items()}
    server = create_app(APPS, "memory:", auth=BuiltinAuth(b"k" * 32, known))
    with TestClient(server, base_url="http://localhost") as client:

        def ask(who: str, path: str, body: Any = None) -> Any:
            headers = {"authorization": f"Bearer {who}"}
            answer = (
                client.post(path, json=body, headers=headers) if body else client.get(path, headers=headers)
            )
            return answer.json()

        session = ask("ada", "/api/sessions", {"app": "desk"})["session_id"]
        for token, name, role in (("one", "guest_1", "staff"), ("two", "guest_2", "guest")):
            member = {"session": session, "principal": name, "roles": [role]}
            invite = ask("ada", "/api/members", member)["invite"]
            ask(token, "/api/invites/accept", {"session": session, "invite": invite})
        told = {who: ask(who, "/api/apps")["apps"][0]["tries"] for who in names}
    assert told == {"ada": ["Good day", "Good night"], "one": ["Good day", "Good night"], "two": []}


def test_they_are_those_of_who_asks_and_for_nobody_else() -> None:
    for who in PEOPLE:
        assert [app["name"] for app in told(who)["apps"]] == told(who, "/api/me")["apps"]
    assert told("bob")["error"].startswith("sign in first")
