"""Row 5, in lists: what happens in one channel changes nothing that a member of another gets listed."""

from typing import Any

import pytest

from tests.security.apps import counter
from tests.security.desk import Desk, desk, run
from turnlog.app import Membership


async def listed(at: Desk, who: str) -> Any:
    return (await at.get(who, "/api/sessions")).value


async def sold_to(at: Desk) -> str:
    """Ada's market: bob buys and has had a turn, cyd sells."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", "buyer")
    await at.enrol("ada", session, "cyd", "seller")
    await at.send("bob", session, "hello")
    await at.told("ada", session, "agent.end")
    return session


async def changes_for_bob(at: Desk) -> set[str]:
    """The fields of bob's list that change while cyd has a turn that waits, and one that ends."""
    session = await sold_to(at)
    before = await listed(at, "bob")
    await at.send("cyd", session, "confirm sure?")
    await at.told("ada", session, "tool.await")
    during = await listed(at, "bob")
    await at.send("cyd", session, "say never mind")
    await at.told("ada", session, "agent.end", 2)
    pairs = [(before["sessions"][0], now["sessions"][0]) for now in (during, await listed(at, "bob"))]
    return {name for old, new in pairs for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def test_list_of_a_member_does_not_change_with_a_turn_of_another_channel() -> None:
    async def scenario() -> None:
        async with desk(counter) as at:
            assert await changes_for_bob(at) == set()

    run(scenario())


def test_list_of_a_member_changes_with_a_turn_of_its_own() -> None:
    async def scenario() -> None:
        async with desk(counter) as at:
            session = await sold_to(at)
            [before] = (await listed(at, "bob"))["sessions"]
            await at.send("bob", session, "confirm sure?")
            await at.told("ada", session, "tool.await")
            [after] = (await listed(at, "bob"))["sessions"]
            assert (before["state"], after["state"]) == ("idle", "waiting")
            assert after["last_activity"] == (await at.log("bob", session))[-1]["ts"]
            assert "last" not in after

    run(scenario())


def test_list_of_the_owner_has_the_last_seq() -> None:
    async def scenario() -> None:
        async with desk(counter) as at:
            session = await sold_to(at)
            [seen] = (await listed(at, "ada"))["sessions"]
            assert seen["last"] == (await at.log("ada", session))[-1]["seq"]

    run(scenario())


def test_control_a_list_of_whole_sessions_tells_of_the_other_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(Membership, "visible_channels", property(lambda _: None))
        async with desk(counter) as at:
            assert await changes_for_bob(at) == {"last", "last_activity", "state"}

    run(scenario())
