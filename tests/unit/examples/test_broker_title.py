"""A case has a title in the list of sessions, and no words of one side in it."""

import asyncio
from typing import Any

from tests.support.tables import for_each_row
from turnlog.app import LOCAL, ClientEvent, Sessions
from turnlog.app.messages import Chat
from turnlog.events import UiMessage
from turnlog.ids import new_id
from turnlog.log import Log, MemoryStore
from turnlog.server.routes.sessions import make_session_info
from turnlog_examples.broker import make_app
from turnlog_examples.broker.case import new_case
from turnlog_examples.broker.title import title

SECRET = "Sarah O'Neil"


@for_each_row(
    ("project", "called"),
    [
        ({}, ""),
        ({"projectValue": 12_500.0}, "£12,500"),
        (
            {"projectValue": 1e9, "productSpec": "panels_battery_ev_other"},
            "£1,000,000,000, panels, battery, EV charger and more",
        ),
        ({"projectValue": 0, "retailerName": SECRET, "productSpec": "panels_only"}, "£0, panels"),
        ({"productSpec": "panels_battery", "retailerName": "x\n" * 500}, "panels and battery"),
    ],
)
def test_a_title_is_made_of_numbers_and_kinds(project: dict[str, Any], called: str) -> None:
    assert title({**new_case(), "project": project}) == called


def titles(given: str | None) -> list[str]:
    """The title in the list: of a new case, after the installer's facts, after other facts, after words."""

    async def work() -> list[str]:
        log = Log(MemoryStore())
        sessions = Sessions(log, [make_app()], 1)
        seat = await sessions.create(LOCAL, title=given)
        seen = []

        async def look() -> None:
            [listed], _ = await sessions.list_summaries(LOCAL)
            seen.append(make_session_info(*listed).title)

        async def post(**facts: Any) -> None:
            await sessions.post(seat, [ClientEvent("broker.record_project_facts", facts, new_id("evt_"))])
            await look()

        await look()
        await post(projectValue=12_500, retailerName=SECRET)
        await post(projectValue=30_000, productSpec="panels_battery")
        await sessions.chat(
            seat, Chat("customer", message=UiMessage(text=f"I am {SECRET}.", channel="customer"))
        )
        await look()
        await sessions.close()
        await log.close()
        return seen

    return asyncio.run(work())


def test_the_title_follows_the_project() -> None:
    later = "£30,000, panels and battery"
    assert titles(None) == ["A new project", "£12,500", later, later]


def test_broker_session_just_made_has_no_event_of_its_title() -> None:
    async def work() -> None:
        log = Log(MemoryStore())
        sessions = Sessions(log, [make_app()], 1)
        seat = await sessions.create(LOCAL)
        types = [envelope.type for envelope in (await log.read(seat.session_id)).envelopes()]
        assert types == ["session.member", "process.start"]
        await sessions.close()
        await log.close()

    asyncio.run(work())


def test_a_title_that_somebody_gave_stays() -> None:
    assert titles("The house by the lake") == ["The house by the lake"] * 4
