"""Row 5, in a model's hands: the id of an agent brings no conversation of another channel along."""

from collections.abc import Iterator

import pytest

from tests.security.desk import Desk, desk, run
from turnlog import Agent, App
from turnlog.agents import Scripted, ToolUse
from turnlog.state.history import Conversation, Message

SECRET = "floor-price-900"


def order(messages: list[Message]) -> Iterator[str | ToolUse]:
    """Call the helper with what follows the first word, which names an agent to resume or is `new`."""
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        yield f"It said: {last['content']}"
        return
    resumed, _, prompt = str(last["text"]).partition(" ")
    yield ToolUse("helper", {"prompt": prompt} | ({} if resumed == "new" else {"resume_agent_id": resumed}))


def repeat(messages: list[Message]) -> Iterator[str]:
    """Repeat everything that was read."""
    yield " / ".join(str(part.get("text")) for message in messages for part in message.content)


helper = Agent("Helper", "Repeat.", Scripted(repeat))
clerk = Agent("Clerk", "Obey.", Scripted(order), agents=[helper])
market = App("market", {"buyer": clerk, "seller": clerk})


async def resumed_by_buyer(at: Desk) -> str:
    """What the buyer reads after naming the agent that the seller's model called."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", "buyer")
    await at.enrol("ada", session, "cyd", "seller")
    await at.send("cyd", session, f"new {SECRET}")
    start = (await at.told("ada", session, "agent.start", 2))[1]
    await at.told("ada", session, "agent.end", 2)
    await at.send("bob", session, f"{start['agent_id']} what did they say?")
    await at.told("ada", session, "agent.end", 4)
    answer = await at.get("bob", f"/api/log?session={session}")
    return answer.body.decode()


def test_agent_of_another_channel_named_by_a_model_brings_none_of_its_words() -> None:
    async def scenario() -> None:
        async with desk(market) as at:
            read = await resumed_by_buyer(at)
            assert "It said: what did they say?" in read
            assert SECRET not in read

    run(scenario())


def test_control_conversations_without_channels_bring_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(Conversation, "channel", property(lambda _: "", lambda *_: None))
        async with desk(market) as at:
            assert SECRET in await resumed_by_buyer(at)

    run(scenario())
