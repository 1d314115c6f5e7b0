"""The application of the nodes: an agent that plays the script in its prompt, at the pace of the test.

A script has one part for each completion, divided by `|`, and steps divided by `;`:

say TEXT     stream the text, word by word
wait GATE    wait until the test has opened the gate
call TOOL    call a tool when the completion ends; `call TOOL GATE` lets the tool wait for the gate

`GATE@` is a gate for each node: `GATE@NODE`.
Steps and tools report to a file what they do, on which node and in which session. The folder of the gates and
of the file, and the name of the node, are in the environment.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from turnlog import Agent, App, tool
from turnlog.agents import ReplyBuilder, Request, ToolContext
from turnlog.agents.models.scripted import NO_USAGE, PART_WRITERS
from turnlog.events import Payload
from turnlog.state.history import Message

FOLDER_VARIABLE = "TURNLOG_TEST_FOLDER"
NODE_VARIABLE = "TURNLOG_TEST_NODE"
GATE_POLL_S = 0.01
HELPER_PROMPT = "say I look; wait helper; call look | say It is green"


def report(*words: str) -> None:
    """Append a line to the file of effects, whole."""
    line = " ".join([*words, os.environ[NODE_VARIABLE]])
    with Path(os.environ[FOLDER_VARIABLE], "effects").open("a") as file:
        file.write(line + "\n")


def is_open(gate: str) -> bool:
    return Path(os.environ[FOLDER_VARIABLE], f"gate-{gate}").exists()


async def pass_gate(name: str, waiter: str) -> None:
    """Wait until a gate is open, and report both ends of the wait."""
    if name.endswith("@"):
        name += os.environ[NODE_VARIABLE]
    report("waits", name, waiter)
    while not is_open(name):  # noqa: ASYNC110  another process opens it
        await asyncio.sleep(GATE_POLL_S)  # between two looks at the folder
    report("passes", name, waiter)


async def act(context: ToolContext, name: str, gate: str) -> str:
    report("starts", name, context.session_id)
    if gate:
        await pass_gate(gate, context.session_id)
    report("ends", name, context.session_id)
    return f"{name} is done"


@tool(kind="read")
async def look(context: ToolContext, gate: str = "") -> str:
    """Look."""
    return await act(context, "look", gate)


@tool(kind="write")
async def scribble(context: ToolContext, gate: str = "") -> str:
    """Write without a key."""
    return await act(context, "scribble", gate)


@tool(kind="write")
async def pay(context: ToolContext, idempotency_key: str, gate: str = "") -> str:
    """Pay once for each key."""
    return await act(context, "pay", gate)


@tool(kind="write", approval=True)
async def remove(context: ToolContext, gate: str = "") -> str:
    """Remove what a person allows to remove."""
    return await act(context, "remove", gate)


@tool(kind="read")
def explode() -> str:
    """End the process."""
    report("starts", "explode", "")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


class GatedModel:
    """A model that plays the script in the last prompt."""

    name = "gated"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        prompt, completions = find_position(request.messages)
        parts = prompt.split("|")
        reply.begin(self.name)
        for step in parts[min(completions, len(parts) - 1)].split(";"):
            verb, *words = step.split()
            if verb == "wait":
                await pass_gate(words[0], "model")
            elif verb == "call":
                yield reply.call(words[0], arguments_of(words), None)
            else:
                for batch in PART_WRITERS[str](reply, " ".join(words) + " "):
                    yield batch
        yield reply.done("tool_use" if reply.has_deferred_calls else "end_turn", NO_USAGE)


def arguments_of(words: list[str]) -> dict[str, str]:
    name, *gates = words
    if name == "helper":
        return {"prompt": HELPER_PROMPT}
    arguments = {"gate": gates[0]} if gates else {}
    return arguments | {"idempotency_key": "key-1"} if name == "pay" else arguments


def find_position(messages: list[Message]) -> tuple[str, int]:
    """Return the last prompt, and the number of completions since."""
    completions = 0
    for message in reversed(messages):
        for part in message.content:
            if message.role == "user" and part["type"] == "text":
                return str(part["text"]), completions
        completions += message.role == "assistant"
    raise AssertionError("there is no prompt")


helper = Agent("Helper", "", GatedModel(), tools=(look,))
guide = Agent("Guide", "", GatedModel(), tools=(look, scribble, pay, remove, explode), agents=[helper])
app = App("cluster", guide)
