"""The real Claude CLI, offline, against a scripted Messages server on loopback.

For who has it: the one that TURNLOG_CLAUDE_CLI names, that `claude-agent-sdk` brings along, or on PATH.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.e2e.claude_program import find_program, make_environment
from tests.support.claude_sessions import Room, goes, is_there, lawful, room
from tests.unit.app.desk import ADA, desk
from turnlog import App
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.ids import new_id
from turnlog.log import Log, MemoryStore

Block = dict[str, Any]
PROMPTS = ("hello", "touch", "hang", "again", "still there?")


CLAUDE = find_program()
pytestmark = [pytest.mark.skipif(CLAUDE is None, reason="there is no Claude CLI"), pytest.mark.timeout(180)]


class Model(BaseHTTPRequestHandler):
    """Answers by what it is told last: `touch` uses a tool, `hang` never ends, all else is repeated."""

    protocol_version = "HTTP/1.1"
    over: Event

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        words = last_words(asked["messages"])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        if words == "touch":
            tool = {"command": "touch made", "description": "make it"}
            self._say(
                {"type": "tool_use", "id": new_id("call_"), "name": "Bash", "input": {}}, tool, "tool_use"
            )
        else:
            self._say({"type": "text", "text": ""}, f"You said {words}.", "end_turn", ends=words != "hang")

    def _say(self, block: Block, content: Any, reason: str, ends: bool = True) -> None:
        kind = "input_json_delta" if isinstance(content, dict) else "text_delta"
        piece = {"partial_json": json.dumps(content)} if isinstance(content, dict) else {"text": content}
        usage = {"input_tokens": 5, "output_tokens": 1}
        message = {"id": new_id("blk_"), "type": "message", "role": "assistant", "model": "m", "content": []}
        unfinished = {"stop_reason": None, "stop_sequence": None}
        self._event("message_start", message={**message, **unfinished, "usage": usage})
        self._event("content_block_start", index=0, content_block=block)
        self._event("content_block_delta", index=0, delta={"type": kind, **piece})
        if not ends:
            self.over.wait(60)
            return
        self._event("content_block_stop", index=0)
        finished = {"stop_reason": reason, "stop_sequence": None}
        self._event("message_delta", delta=finished, usage={"output_tokens": 3})
        self._event("message_stop")

    def _event(self, type: str, **fields: Any) -> None:
        self.wfile.write(f"event: {type}\ndata: {json.dumps({'type': type, **fields})}\n\n".encode())
        self.wfile.flush()


class Refuses(Model):
    """Knows nobody."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        error = {"type": "authentication_error", "message": "invalid x-api-key"}
        body = json.dumps({"type": "error", "error": error}).encode()
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def last_words(messages: list[Any]) -> str:
    """The last prompt, or that a tool has brought something; the process tells its model more than that."""
    for message in reversed(messages):
        content = message["content"]
        for block in reversed([{"type": "text", "text": content}] if isinstance(content, str) else content):
            if block["type"] == "tool_result":
                return "a result"
            if block.get("text") in PROMPTS:
                return str(block["text"])
    return "nothing"


@contextmanager
def claude(folder: Path, model: type[BaseHTTPRequestHandler] = Model) -> Iterator[App]:
    """An application that the real CLI answers; it knows this folder, the script and nothing else."""
    over = Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Scripted", (model,), {"over": over}))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    env = make_environment(folder, server.server_port)
    assert CLAUDE is not None
    try:
        yield App("real", ClaudeCode([CLAUDE], cwd=folder, env=env))
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


async def texts(office: Room) -> list[str]:
    return [message["text"] for message in await office.bodies("assistant.message")]


def test_turns_permissions_stops_and_deaths(tmp_path: Path) -> None:
    async def run(app: App) -> None:
        log = Log(MemoryStore())
        async with room(app, log) as office:
            await office.ask("hello")
            assert await texts(office) == ["You said hello."]
            await permitted(office)
            await stopped(office)
            await killed(office)
        async with desk(app, log=log) as later:  # another server goes on with the conversation
            again = Room(later, await later.sessions.get_membership(ADA, office.seat.session_id))
            await again.ask("still there?")
            assert (await texts(again))[-1] == "You said still there?."
        lawful(app, await again.events())
        sources = {start["source_session"] for start in await again.bodies("agent.start")}
        assert len(sources) == 1
        assert not any(map(is_there, await again.pids()))
        assert await again.bodies("parse.reject") == []
        await log.close()

    async def permitted(office: Room) -> None:
        for decision, made in (("deny", False), ("approve", True)):
            turn = await office.ask("touch")
            await office.decide(decision)
            await office.rests(turn)
            assert (tmp_path / "made").exists() == made
            assert (await texts(office))[-1] == "You said a result."
        results = [result["ok"] for result in await office.bodies("tool.result")]
        assert results == [False, True]

    async def stopped(office: Room) -> None:
        turn = await office.say("hang")
        await office.until("block.delta", trace_id=turn)
        await office.desk.sessions.stop(office.seat)
        await office.rests(turn)
        assert (await office.ends())[-1] == "cancelled"
        assert len(await office.pids()) == 1

    async def killed(office: Room) -> None:
        turn = await office.say("hang")
        await office.until("block.delta", trace_id=turn)
        [pid] = await office.pids()
        os.kill(pid, 9)
        goes(pid)
        await office.rests(turn)
        await office.ask("again")
        assert (await office.ends())[-2:] == ["error", "end_turn"]
        assert (await texts(office))[-1] == "You said again."

    with claude(tmp_path) as app:
        asyncio.run(run(app))


def test_a_key_that_is_not_known_is_said(tmp_path: Path) -> None:
    async def run(app: App) -> None:
        async with room(app) as office:
            await office.ask("hello")
            assert await office.codes() == ["auth_failed"]
            assert (await office.bodies("process.auth"))[-1]["needs_setup"]

    with claude(tmp_path, Refuses) as app:
        asyncio.run(run(app))
