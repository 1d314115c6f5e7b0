"""The OpenAI Agents SDK: definitions that are refused, states that cannot be read, and a clean process."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agents import Agent, RunConfig, Runner, handoff
from agents.run_state import CURRENT_SCHEMA_VERSION

from tests.support.runtimes.openai_agents import make_agent
from turnlog import adapters
from turnlog.adapters import Part, UnreadableState
from turnlog.adapters.openai_agents_runner import (
    OpenAiAgentsRunner,
    SavedApproval,
    SavedRun,
    list_agents,
    read_saved_run,
    restore_run,
)
from turnlog.errors import CallerError
from turnlog.testing.runtimes import ScriptRecord
from turnlog.testing.runtimes.answering import ONE


def test_agent_of_another_framework_and_options_of_the_adapter_are_refused() -> None:
    with pytest.raises(CallerError, match="expected an agent of the OpenAI Agents SDK, got str"):
        adapters.openai_agents("Lead")  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="expected no session: the adapter"):
        adapters.openai_agents(Agent(name="Lead"), session=object())


def test_agents_are_found_through_hand_offs_of_any_kind() -> None:
    third = Agent(name="Third")
    second = Agent(name="Second", handoffs=[handoff(third)])
    first = Agent(name="First", handoffs=[second])
    third.handoffs = [first]
    assert list(list_agents(first)) == ["First", "Second", "Third"]
    runner = OpenAiAgentsRunner(first, None, None, {})
    assert runner.describe_agent(msgspec.msgpack.encode(SavedRun(agent="Third"))).name == "Third"
    assert runner.describe_agent(msgspec.msgpack.encode(SavedRun(agent="gone"))).name == "First"


def test_state_of_another_schema_is_not_read() -> None:
    runner = OpenAiAgentsRunner(Agent(name="Lead"), None, None, {})
    assert runner.can_read(runner.version)
    assert not runner.can_read("0.99.0/77.0")
    assert not runner.can_read("0.24.0")
    with pytest.raises(UnreadableState):
        read_saved_run(b"no msgpack")


@pytest.mark.parametrize(
    "run", [None, {"$schemaVersion": "77.0"}, {"$schemaVersion": CURRENT_SCHEMA_VERSION}]
)
def test_run_that_cannot_be_restored_is_unreadable(run: dict[str, Any] | None) -> None:
    with pytest.raises(UnreadableState, match="not of this version"):
        asyncio.run(restore_run(Agent(name="Lead"), SavedRun(run=run), Part("s")))


def test_run_that_waits_for_other_calls_than_its_questions_is_unreadable() -> None:
    agent = make_agent(ONE, ScriptRecord())

    async def work() -> None:
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, "Hi", run_config=config)
        state = result.to_state().to_json()
        saved = SavedRun(run=state, questions=[SavedApproval("agt_1", "call_b")])
        with pytest.raises(UnreadableState, match="other calls"):
            await restore_run(agent, saved, Part("s"))

    asyncio.run(work())


# what the framework does to the process

PROBE = """
import asyncio, logging, os, signal, sys, threading, warnings
sys.path.insert(0, {root!r})
os.environ["OPENAI_API_KEY"] = "sk-none"
connections = []
sys.addaudithook(
    lambda name, args: connections.append(name) if name in ("socket.connect", "socket.getaddrinfo") else None
)
import turnlog.adapters
assert "agents" not in sys.modules

def look():
    loggers = [logging.root, *logging.Logger.manager.loggerDict.values()]
    handlers = [handler for one in loggers for handler in getattr(one, "handlers", ())]
    return dict(
        environment=dict(os.environ),
        threads=[thread.name for thread in threading.enumerate()],
        handlers=handlers,
        filters=list(warnings.filters),
        policy=type(asyncio.get_event_loop_policy()),
        signals=[signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        hooks=(sys.excepthook, sys.unraisablehook, threading.excepthook),
        path=list(sys.path),
        folder=os.getcwd(),
    )

import pydantic
from tests.support.runtimes import fake
before = look()
import agents
from tests.support.runtimes.openai_agents import OpenAiAgents
from turnlog.testing.runtimes import contracts_for
names = ("text", "failing_tool", "stop_in_tool", "nested_approval_after_restart")
traces = []

class Collector(agents.TracingProcessor):
    def on_trace_start(self, trace): traces.append(trace)
    def on_trace_end(self, trace): pass
    def on_span_start(self, span): pass
    def on_span_end(self, span): pass
    def shutdown(self): pass
    def force_flush(self): pass

for contract in contracts_for(OpenAiAgents()):
    if contract.name in names:
        contract.check(OpenAiAgents())
        if contract.name == "text":
            agents.set_trace_processors([Collector()])
after = look()
changed = [key for key in before if before[key] != after[key]]
from turnlog import adapters
from tests.support.runtimes.openai_agents import make_agent
from turnlog.testing.runtimes import AgentScript, ScriptRecord, ScriptReply
agent = make_agent(AgentScript("Lead", lambda _: ScriptReply(("Hi.",))), ScriptRecord())
unconfigured = len(traces)
asyncio.run(adapters.openai_agents(agent, run_config=agents.RunConfig()).ask("Hi"))
print({{"changed": changed, "connections": connections, "traces": [unconfigured, len(traces)]}})
"""


def test_running_agents_leaves_the_process_as_it_was_and_connects_to_nothing() -> None:
    root = str(Path(__file__).parents[3])
    probe = PROBE.format(root=root)
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # runs are traced only if the user asks for it: the last one is the control
    assert done.stdout.splitlines()[-1] == str({"changed": [], "connections": [], "traces": [0, 1]})
    assert done.stderr == ""
