"""AG-UI on both sides: a server of ours as the source of another, and tools of a page for an agent."""

import asyncio
from typing import Any

from tests.support.loopback import LoopbackServers
from tests.support.runtimes.ag_ui import TOKEN, TurnlogOverAgUi, make_turnlog_application
from tests.unit.adapters.ag_ui_peer import Json, Peer, call, run, say
from turnlog import App, adapters
from turnlog.adapters import Part
from turnlog.adapters.ag_ui_request import AgUiEndpoint
from turnlog.events import Entry
from turnlog.log import Log, MemoryStore
from turnlog.testing.runtimes import AgentScript, CallAgent, CallTool, ScriptInput, ScriptReply, ScriptTool
from turnlog.testing.runtimes.harness import open_session
from turnlog.testing.runtimes.log_laws import LogLaws, texts_by_agent
from turnlog.vocabularies import FULL_CATALOG


async def read_log(log: Log, session_id: str) -> list[Entry]:
    page = await log.read(session_id, -1)
    return [FULL_CATALOG.decode_entry(envelope) for envelope in page.envelopes()]


def make_team() -> AgentScript:
    """Return a lead that thinks, looks, and asks two researchers at once, one of whom asks a reader."""

    def reply(given: ScriptInput) -> ScriptReply:
        if given.new_results:
            return ScriptReply(("Oslo ", "is green."))
        calls = (
            CallTool("look", "Oslo", "call_l"),
            CallAgent("Researcher", "Oslo", "call_a"),
            CallAgent("Researcher", "Bergen", "call_b"),
        )
        return ScriptReply(("I ", "ask."), ("Let me ", "think."), calls)

    def reply_researcher(given: ScriptInput) -> ScriptReply:
        place = given.last_user_text
        if given.new_results:
            return ScriptReply((f"{place} has ", "grass."))
        return ScriptReply((f"Reading of {place}. ",), calls=(CallAgent("Reader", place, "call_same"),))

    reader = AgentScript("Reader", lambda given: ScriptReply(("All of ", given.last_user_text)))
    researcher = AgentScript("Researcher", reply_researcher, agents=[reader])
    return AgentScript("Lead", reply, [ScriptTool("look")], [researcher])


def test_log_of_a_source_and_the_log_that_reads_it_have_the_same_texts() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), LoopbackServers() as servers:
            runtime = TurnlogOverAgUi(servers)
            async with open_session(runtime, make_team()) as session:
                await session.say("Hi")
                await session.check()
                await session.say("Again")
                await session.check()
                outer = await session.entries()
            log = Log(runtime.store)
            [record] = await log.sessions()
            inner = await read_log(log, record.session_id)
            assert LogLaws(inner).open == {}
            assert texts_by_agent(outer) == texts_by_agent(inner)
            assert {name: len(texts) for name, texts in texts_by_agent(outer).items()} == {
                "Lead": 4,
                "Researcher": 8,
                "Reader": 4,
            }

    asyncio.run(scenario())


def test_tools_of_a_page_reach_the_agent_and_its_answers_come_back() -> None:
    peer = Peer(run(*say("Sure? "), *call("c1", "confirm")), run(*say("Done.", "m2")))
    tools = [{"name": "confirm", "description": "Ask.", "parameters": {"type": "object", "properties": {}}}]

    async def scenario() -> list[list[Json]]:
        async with asyncio.timeout(60), LoopbackServers() as servers:
            agent_url = servers.start(peer.application)
            app = App("relay", adapters.ag_ui(f"{agent_url}/agent", name="Lead"))
            url = servers.start(make_turnlog_application(app, MemoryStore()))
            page = AgUiEndpoint(f"{url}/ag-ui/relay", TOKEN, {}, 60.0)
            body = {"threadId": "t", "protocolVersion": "1.0", "tools": tools}
            user = {"id": "u1", "role": "user", "content": "Hi"}
            answer = {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "yes"}
            runs = ({"runId": "r1", "messages": [user]}, {"runId": "r2", "messages": [user, answer]})
            return [[item async for item in page.run(Part(""), {**body, **fields})] for fields in runs]

    first, second = asyncio.run(scenario())
    assert first[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
    assert second[-1]["outcome"] == {"type": "success"}
    assert texts_of(second) == "Done."
    assert [tool["name"] for tool in peer.bodies[0]["tools"]] == ["confirm"]
    assert peer.bodies[1]["messages"][-1]["content"] == "yes"


def texts_of(events: list[Json]) -> str:
    pieces: list[Any] = [item["delta"] for item in events if item["type"] == "TEXT_MESSAGE_CONTENT"]
    return "".join(pieces)
