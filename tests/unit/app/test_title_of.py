"""`App(title_of=)`: the session's title follows the application's state."""

import asyncio
from typing import Any, ClassVar

import pytest

from tests.support.tables import for_each_row
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import LOCAL, ClientEvent, Membership, Sessions
from turnlog.app.app_state import fit_title
from turnlog.errors import RuleError
from turnlog.events import Envelope, Payload, SessionTitle, Vocabulary
from turnlog.events.payload import ANY_ORIGIN
from turnlog.ids import new_id
from turnlog.log import Log, MemoryStore


class Rename(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = ANY_ORIGIN

    name: str


def rename(state: dict[str, Any], payload: Rename, _: Envelope) -> dict[str, Any]:
    return {"name": payload.name}


def title_of(state: dict[str, Any]) -> str:
    if state["name"] == "bad":
        raise KeyError("bad")
    return str(state["name"])


def make_app(name: str = "") -> App:
    return App(
        "shop",
        Agent("Clerk", "", Scripted(lambda _: ["Hello."])),
        vocabulary=Vocabulary("shop", [Rename]),
        reducers={Rename: rename},
        initial_state=lambda: {"name": name},
        title_of=title_of,
    )


def post_names(*names: str, title: str | None = None, start: str = "") -> list[Envelope]:
    """Post names into a new session. Return the events of the application and of the title."""

    async def work() -> list[Envelope]:
        log = Log(MemoryStore())
        sessions = Sessions(log, [make_app(start)], 1)
        membership = await sessions.create(LOCAL, title=title)
        try:
            for name in names:
                await post(sessions, membership, name)
            envelopes = (await log.read(membership.session_id)).envelopes()
            return [one for one in envelopes if one.type in ("shop.rename", "session.title")]
        finally:
            await sessions.close()
            await log.close()

    return asyncio.run(work())


async def post(sessions: Sessions, membership: Membership, name: str) -> None:
    await sessions.post(membership, [ClientEvent("shop.rename", {"name": name}, new_id("evt_"))])


def titles(envelopes: list[Envelope]) -> list[tuple[str, str, str | None]]:
    catalog = make_app().catalog
    found: list[tuple[str, str, str | None]] = []
    for envelope in envelopes:
        payload = catalog.decode_payload(envelope)
        if isinstance(payload, SessionTitle):
            found.append((payload.title, envelope.origin, envelope.actor))
    return found


def test_title_of_appends_a_title_behind_the_event_that_changed_the_state() -> None:
    envelopes = post_names("Tea")
    assert [one.type for one in envelopes] == ["shop.rename", "session.title"]
    assert envelopes[1].seq == envelopes[0].seq + 1
    assert titles(envelopes) == [("Tea", "app", "title")]


def test_title_of_the_same_value_appends_one_title() -> None:
    assert [title for title, *_ in titles(post_names("Tea", "Tea", "Milk", "Tea"))] == ["Tea", "Milk", "Tea"]


def test_title_of_an_empty_value_appends_no_title() -> None:
    assert [title for title, *_ in titles(post_names("", "Tea", " \n", ""))] == ["Tea"]


def test_title_of_the_initial_state_is_the_title_of_a_new_session() -> None:
    assert titles(post_names(start="Shop")) == [("Shop", "app", "title")]


def test_title_of_keeps_a_title_that_a_member_gave() -> None:
    assert [title for title, *_ in titles(post_names("Tea", title="Mine"))] == ["Mine"]


def test_title_of_that_raises_refuses_the_batch() -> None:
    with pytest.raises(RuleError, match="the rule title failed with KeyError"):
        post_names("bad")


@for_each_row(
    ("text", "title"),
    [
        ("a\u0000b\n\tc ", "a b c"),
        ("£" * 500, "£" * 64),
        ("x" + "£" * 500, "x" + "£" * 63),
        ("x" * 127 + " y", "x" * 127),
        ("\ud800", "?"),
        ("\u007f \r\n", ""),
    ],
)
def test_fit_title(text: str, title: str) -> None:
    assert fit_title(text) == title


def test_title_of_a_long_value_is_cut_to_what_session_title_accepts() -> None:
    assert [title for title, *_ in titles(post_names("£" * 500))] == ["£" * 64]
