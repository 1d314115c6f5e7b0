"""A process that speaks stream-json like the Claude CLI, offline: Julian and his team, by a script.

    python -m turnlog_examples.demo_office.standin --input-format stream-json --output-format stream-json ...

It takes the options of the original that change what it writes, and lets all others pass. Messages come on
stdin, one turn after the other; it can be interrupted, asks for permissions and answers what the host asks.
Tools work for real in the folder it was started in. What it has to remember it keeps there, in `.standin/`,
so that another process can go on with `--resume`. What it says follows from what it is told (`script`), and
on request something goes wrong (`mishaps`). `--session-id` is for tests, which also add faults of their own.
"""

import argparse
import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import msgspec

from turnlog_examples.demo_office.command import MODEL
from turnlog_examples.demo_office.lines import Data, Lines
from turnlog_examples.demo_office.mishaps import MISHAPS, MakeTurn, first_word, turn_of
from turnlog_examples.demo_office.player import Gone, Player, Stage
from turnlog_examples.demo_office.script import Aside, Mind, Turn
from turnlog_examples.demo_office.tools import Desk

LINE_BYTES = 16 << 20
MEMORY = ".standin"
SESSION = re.compile(r"[\w-]{1,64}")

PlayCommand = Callable[["Process", str, Player], Coroutine[Any, Any, None]]


class Process:
    """The process, while it runs."""

    def __init__(
        self,
        options: argparse.Namespace,
        folder: Path,
        mishaps: Mapping[str, MakeTurn],
        commands: Mapping[str, PlayCommand],
        write: Callable[[bytes], None],
    ) -> None:
        self._folder, self._options = folder, options
        self._mishaps, self._commands = mishaps, commands
        self._session = options.resume or options.session_id or str(uuid4())
        self._file = folder / MEMORY / f"{self._session}.json"
        self._mind = remembered(self._file) if options.resume else unknown(self._file)
        out = Lines(self._session, write, options.include_partial_messages, options.model)
        self._stage = Stage(out, Desk(folder), self._remember, leave)
        self._stage.pace_s = options.pace_s
        self._stage.asks = options.permission_prompt_tool == "stdio"
        self._stage.forwards = options.forward_subagent_text
        self._waiting: asyncio.Queue[Data | None] = asyncio.Queue()
        self._turn: asyncio.Task[None] | None = None
        self._results = 0

    async def run(self) -> None:
        """Read stdin to its end, and answer everything."""
        reader = asyncio.StreamReader(LINE_BYTES)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        answering = asyncio.create_task(self._answer())
        async for line in reader:
            self._take(line)
        self._stage.gone.set()
        self._waiting.put_nowait(None)
        await answering

    def _take(self, data: bytes) -> None:
        """One line of the host; what is none is not for us."""
        with contextlib.suppress(msgspec.DecodeError):
            line = msgspec.json.decode(data)
            take = TAKES.get(line.get("type")) if isinstance(line, dict) else None
            if take is not None:
                take(self, line)

    def message(self, line: Data) -> None:
        """Queue a message of a person for its turn."""
        if self._turn is not None or not self._waiting.empty():
            self._lifecycle(line, "queued")
        self._waiting.put_nowait(line)

    def request(self, line: Data) -> None:
        """The host wants something of the process."""
        request_id, wanted = line.get("request_id", ""), line.get("request", {}).get("subtype")
        out = self._stage.lines
        if wanted == "interrupt":
            out.control(request_id, {"still_queued": []})
            if self._turn is not None:
                self._turn.cancel()
        elif wanted in ("initialize", "set_permission_mode", "set_model"):
            out.control(request_id, {"commands": []} if wanted == "initialize" else {})
        else:
            out.control(request_id, None, f"unknown request {wanted}")

    def response(self, line: Data) -> None:
        """The host answers a question; only the first answer counts."""
        body = line.get("response", {})
        question = self._stage.questions.get(body.get("request_id"))
        if question is not None and not question.done():
            refused = {"behavior": "deny", "message": str(body.get("error"))}
            question.set_result(body["response"] if body.get("subtype") == "success" else refused)

    async def _answer(self) -> None:
        """One turn after the other."""
        while (line := await self._waiting.get()) is not None:
            self._turn = asyncio.create_task(self._play(line))
            try:
                await self._turn
            except Gone:
                return
            finally:
                self._turn = None

    async def _play(self, line: Data) -> None:
        text, uuid = text_of(line), line.get("uuid")
        self._lifecycle(line, "started")
        if self._options.replay_user_messages:
            self._stage.lines.line("user", message=line["message"], isReplay=True)
        self._mind.turns += 1
        self._stage.lines.begin(self._mind.turns)
        self._stage.meter.begin(text)
        self._remember()  # now: who dies in a turn had it, and its ids are gone
        play = self._commands.get(first_word(text), Process.turn)
        await play(self, text, Player(self._stage, uuid))
        self._results += 1
        self._lifecycle(line, "completed")

    async def turn(self, text: str, player: Player) -> None:
        """A turn as any other."""
        await self.play(turn_of(self._mishaps, self._mind, text), player)

    async def play(self, turn: Turn, player: Player) -> None:
        self._stage.lines.init(str(self._folder))
        await player.play(turn, self._results)

    async def compact(self, text: str, player: Player) -> None:
        """The conversation is made shorter."""
        out = self._stage.lines
        out.system("status", status="compacting")
        out.system("status", status=None, compact_result="success")
        facts = {"trigger": "manual", "pre_tokens": 900, "post_tokens": 90}
        await self.play(aside("system", subtype="compact_boundary", compact_metadata=facts), player)

    def _lifecycle(self, line: Data, state: str) -> None:
        if uuid := line.get("uuid"):
            self._stage.lines.line("command_lifecycle", command_uuid=uuid, state=state)

    def _remember(self) -> None:
        self._file.parent.mkdir(exist_ok=True)
        whole = self._file.with_suffix(".new")
        whole.write_bytes(msgspec.json.encode(self._mind))
        whole.replace(self._file)


def aside(type: str, **fields: Any) -> Turn:
    yield [Aside(type, fields)]


def text_of(line: Data) -> str:
    """What a message says."""
    content = line.get("message", {}).get("content", "")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(str(part.get("text", "")) for part in parts)


def remembered(file: Path) -> Mind:
    """What a process before this one knew."""
    if not SESSION.fullmatch(file.stem) or not file.exists():
        refuse(f"there is no session {file.stem[:80]}")
    return msgspec.json.decode(file.read_bytes(), type=Mind)


def unknown(file: Path) -> Mind:
    """Nothing: the session begins."""
    if file.exists():
        refuse(f"the session {file.stem[:80]} is in use")
    return Mind()


def refuse(problem: str) -> NoReturn:
    """Nothing can be done."""
    sys.stderr.write(problem + "\n")
    leave(1)


def leave(code: int) -> NoReturn:
    """End at once, or by a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(abs(code))


TAKES: dict[Any, Callable[[Process, Data], None]] = {
    "user": Process.message,
    "control_request": Process.request,
    "control_response": Process.response,
}
COMMANDS: Mapping[str, PlayCommand] = {"/compact": Process.compact}


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """The options that count here."""
    parser = argparse.ArgumentParser("standin", allow_abbrev=False)
    for flag in ("--include-partial-messages", "--forward-subagent-text", "--replay-user-messages"):
        parser.add_argument(flag, action="store_true")
    for name in ("--resume", "--session-id", "--permission-prompt-tool"):
        parser.add_argument(name)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--pace-s", type=float, default=0.0)
    return parser.parse_known_args(arguments)[0]


def write_stdout(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def run(
    mishaps: Mapping[str, MakeTurn] = MISHAPS,
    commands: Mapping[str, PlayCommand] = COMMANDS,
    write: Callable[[bytes], None] = write_stdout,
) -> None:
    """Run until stdin ends."""
    process = Process(options_of(sys.argv[1:]), Path.cwd(), mishaps, commands, write)
    with contextlib.suppress(BrokenPipeError):
        asyncio.run(process.run())
    leave(0)


if __name__ == "__main__":
    run()
