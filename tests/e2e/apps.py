"""Applications for the tests over sockets."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.state.history import Message
from turnlog_examples.tour import make_app

fast = make_app()
slow = make_app(pace_s=0.02)


def talk(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A long answer: one that is still being said when a test wants to interrupt it."""
    yield "word " * 2000


talker = Agent("Talker", "Talk.", Scripted(talk, word_delay_s=0.01))
endless = App("endless", talker)
closing = App("closing", talker, on_crash="close")


def add_run(file: Path) -> int:
    """Count a run in a file; return the number of runs."""
    with file.open("a") as runs:
        runs.write("x")
    return file.stat().st_size


async def run_counted(file: Path) -> int:
    """Count a run in a file. The first run never returns."""
    run_count = add_run(file)
    if run_count == 1:
        await asyncio.Event().wait()
    return run_count


@tool(kind="read")
async def count_reads(folder: str) -> int:
    """Count the runs of this tool."""
    return await run_counted(Path(folder, "read"))


@tool(kind="write")
async def count_writes(folder: str) -> int:
    """Count the runs of this tool."""
    return await run_counted(Path(folder, "write"))


def count(messages: list[Message]) -> Iterator[str | ToolUse]:
    """Start both tools in the folder that the message names, then end."""
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        yield "Both were counted."
    else:
        yield ToolUse("count_reads", {"folder": last["text"]})
        yield ToolUse("count_writes", {"folder": last["text"]})


counting = App("counting", Agent("Counter", "Count.", Scripted(count), tools=(count_reads, count_writes)))


def fail(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A model that breaks in the middle of a sentence."""
    yield "I was about to "
    raise ConnectionError("the line is dead")


broken = App("broken", Agent("Broken", "Break.", Scripted(fail)))


@tool(executor="remote")
def count_words(text: str) -> int:
    """Count the words of a text, in a process that is near to it."""
    return len(text.split())


def delegate(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A model that lets another process count, and says what it counted."""
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        yield f"There are {last['content']} words."
    else:
        yield ToolUse("count_words", {"text": last["text"]})


remote = App("remote", Agent("Counter", "Count.", Scripted(delegate), tools=(count_words,)))
