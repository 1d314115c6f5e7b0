"""A customer clicks faster than the guide speaks: the second click waits for its turn."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.app.desk import Desk, desk, play
from tests.unit.examples.test_broker_session import QUOTED
from turnlog.agents import Scripted
from turnlog.agents.models import Request
from turnlog.app import LOCAL, ClientEvent, Membership
from turnlog.app.messages import Chat
from turnlog.events import Payload
from turnlog.ids import new_id
from turnlog.parse.reply import ReplyBuilder
from turnlog_examples.broker import make_app, script
from turnlog_examples.broker.buttons import VIEW

ASKED = ("present_disclosure", {"id": "credit_search_consent"})


class HeldGuide:
    """The customer's guide, which speaks when the gate is open."""

    name = "held guide"

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self._guide = Scripted(script.customer)

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        await self.gate.wait()
        async for batch in self._guide.stream(request, reply):
            yield batch


async def click(at: Desk, seat: Membership, button: str) -> str:
    """Click a button of the open view; return the turn."""
    await at.post(
        seat, "ui.action", {"view_id": VIEW, "action": {"kind": "button.click", "button_id": button}}
    )
    return (await at.told(seat, "ui.action"))[-1].trace_id or ""


@pytest.mark.parametrize(("months", "decision"), [(96, "approved, "), (24, "£")])
def test_guide_whose_customer_clicks_during_its_turn_tells_what_the_lenders_answered(
    months: int, decision: str
) -> None:
    async def run() -> None:
        guide = HeldGuide()
        async with desk(make_app(model=guide)) as at:
            seat = await at.sessions.create(LOCAL)
            guide.gate.set()
            quote = ("record_provisional_quote", {"termMonths": months})
            facts = [
                ClientEvent(f"broker.{name}", data, new_id("evt_")) for name, data in [*QUOTED, quote, ASKED]
            ]
            await at.sessions.chat(seat, Chat("customer", facts))
            guide.gate.clear()
            granted = await click(at, seat, "grant")
            await at.until(seat, "agent.start", trace_id=granted)
            confirmed = await click(at, seat, "confirm")
            guide.gate.set()
            ended = await at.until(seat, "agent.end", trace_id=confirmed)
            assert f"Northgate Bank: {decision}" in ended.get("result", "")

    play(run)
