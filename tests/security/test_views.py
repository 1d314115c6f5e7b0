"""Row 18: an action is held against the view that was sent, to whom it was sent, while it is open."""

from typing import Any

import pytest

from tests.security.apps import counter, plain
from tests.security.desk import Desk, desk, run
from turnlog.app import client_events
from turnlog.errors import InvalidEvent
from turnlog.events import CATALOG, view_nodes

VIEW = "who"


async def shown(at: Desk, who: str, session: str) -> str:
    """A form is shown; the id of the event that shows it."""
    seen = len([event for event in await at.log("ada", session) if event["type"] == "assistant.view"])
    await at.send(who, session, "form")
    events = await at.told("ada", session, "assistant.view", seen + 1)
    await at.told("ada", session, "agent.end", seen + 1)
    return str(events[-1]["id"])


def submit(values: Any, view: str = VIEW, form: str = "person", **more: str) -> dict[str, Any]:
    action = {"kind": "form.submit", "form_id": form, "values": values}
    return {"type": "ui.action", "payload": {"view_id": view, "action": action, **more}}


async def act(at: Desk, who: str, session: str, *events: Any) -> int:
    return (await at.post(who, "/api/events", {"session": session, "events": list(events)})).status


NAME = {"name": "Ada"}
WRONG: list[Any] = [
    {},
    {"name": ""},
    {"name": 7},
    {"name": ["Ada"]},
    {"name": "Ada", "admin": True},
    {"name": "Ada", "__proto__": {"admin": True}},
    {"name": "Ada", "constructor": {"prototype": {"admin": True}}},
    {"name": "x" * 200_000},
]


async def late_or_foreign(at: Desk) -> list[int]:
    """Actions on views that are not there for who acts, or not any more."""
    first, second = await at.session("ada"), await at.session("ada")
    old = await shown(at, "ada", first)
    statuses = [
        await act(at, "ada", second, submit(NAME)),  # of another session
        await act(at, "ada", first, submit(NAME, view="none")),
    ]
    await shown(at, "ada", first)
    statuses.append(await act(at, "ada", first, submit(NAME, shown=old)))  # it was shown anew
    assert await act(at, "ada", first, submit(NAME)) == 202
    statuses.append(await act(at, "ada", first, submit({"name": "Bob"})))  # it was sent already
    return statuses


def test_a_foreign_or_expired_view_is_a_conflict() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert await late_or_foreign(at) == [409, 409, 409, 409]

    run(scenario())


def test_what_does_not_fit_the_view_is_refused_whole() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada")
            await shown(at, "ada", session)
            before = await at.log("ada", session)
            for values in WRONG:
                assert await act(at, "ada", session, submit(values)) == 400, str(values)[:80]
                assert await act(at, "ada", session, submit(NAME), submit(values)) in (400, 409)
            assert await act(at, "ada", session, submit(NAME, form="other")) in (400, 409)
            assert await at.log("ada", session) == before

    run(scenario())


def test_control_without_the_check_everything_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(client_events, "validate_action", lambda *_, **__: [])
        async with desk(plain) as at:
            assert await late_or_foreign(at) == [202, 202, 202, 202]
            session = await at.session("ada")
            await shown(at, "ada", session)
            for values in WRONG:
                assert await act(at, "ada", session, submit(values)) == 202

    run(scenario())


def test_a_view_of_another_channel_is_not_there() -> None:
    async def scenario() -> None:
        async with desk(counter) as at:
            session = await at.session("ada")
            await at.enrol("ada", session, "bob", "buyer")
            await at.enrol("ada", session, "cyd", "seller")
            await shown(at, "cyd", session)
            body = {"session": session, "events": [submit(NAME)]}
            foreign = await at.post("bob", "/api/events", body)
            nowhere = await at.post("bob", "/api/events", {**body, "events": [submit(NAME, view="none")]})
            assert (foreign.status, nowhere.status) == (409, 409)
            assert foreign.body.replace(b"who", b"none") == nowhere.body
            assert await act(at, "cyd", session, submit(NAME)) == 202  # control: it is there for cyd

    run(scenario())


TEXT = {"type": "text", "text": "hi"}


def nested(depth: int) -> Any:
    tree: Any = TEXT
    for _ in range(depth):
        tree = {"type": "section", "children": [tree]}
    return {"type": "screen", "children": [tree]}


TREES: list[Any] = [
    {"type": "html", "html": "<script>1</script>"},
    {"type": "iframe", "src": "https://evil.example"},
    {"type": "image", "src": "http://127.0.0.1/"},
    {"type": "text", "text": "x", "onclick": "alert(1)"},
    {"type": "text", "text": "x", "__proto__": {"admin": True}},
    {"type": "screen", "children": [{"type": "constructor"}]},
    {"type": "form", "id": "__proto__", "children": []},
    {"type": "link", "href": "javascript:alert(1)", "text": "x"},
    {"type": "screen", "children": [TEXT] * 3000},
    nested(25),
    [TEXT],
    "<b>x</b>",
]


def refused(tree: Any) -> bool:
    view = {"kind": "a2ui.v1", "view_id": "v", "tree": tree}
    try:
        CATALOG.build_event("assistant.view", {"view": view}, id="evt_1", origin="tool")
    except InvalidEvent:
        return True
    return False


def test_trees_of_unknown_deep_or_poisoned_nodes_are_refused() -> None:
    assert [tree for tree in TREES if not refused(tree)] == []
    assert not refused(nested(5))


def test_control_without_that_check_every_tree_of_nodes_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_nodes, "find_view_error", lambda tree: None)
    assert [tree for tree in TREES if isinstance(tree, dict) and refused(tree)] == []
    assert not refused(nested(25))
