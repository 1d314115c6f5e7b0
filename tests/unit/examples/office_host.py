"""A host of the stand-in: lines down, lines up, over real pipes; and what a parser makes of them."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.claude_standin import COMMAND
from tests.support.claude_vectors import assert_lawful, counting
from tests.support.limits import HANG_S
from turnlog.events import EventDraft, Payload
from turnlog.parse.claude.parser import CliParser
from turnlog.parse.claude.turns import SentMessage
from turnlog.team.markers import MarkerParser
from turnlog.team.tool_effects import TeamToolEffects
from turnlog_examples.office.instructions import SCREEN

STREAMED = ("--include-partial-messages", "--forward-subagent-text", "--permission-prompt-tool", "stdio")


class Host:
    """One process, and everything it said."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process, self.folder = process, folder
        self._stdin, self._stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._asked: list[str] = []
        self.raw = b""
        self._limit = threading.Timer(HANG_S, process.kill)  # whoever waits for ever is told
        self._limit.start()

    def tell(self, **line: Any) -> None:
        self._stdin.write(json.dumps(line).encode() + b"\n")
        self._stdin.flush()

    def say(self, text: str) -> None:
        uuid = f"u-{len(self._asked)}"
        self._asked.append(uuid)
        self.tell(type="user", message={"role": "user", "content": text}, uuid=uuid)

    def until(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """The lines up to the wanted one, those that are none left out."""
        found: list[Any] = []
        for data in self._stdout:
            self.raw += data
            try:
                line = json.loads(data)
            except ValueError:
                continue
            found.append(line)
            if isinstance(line, dict) and wanted(line):
                return found
        raise AssertionError(f"it ended with {self.process.wait()}: {self.stderr.read().decode()}")

    def turn(self, text: str) -> list[Any]:
        """Say something; the lines up to the result."""
        self.say(text)
        return self.until(typed("result"))

    def end(self) -> int:
        """Say nothing more; the exit code."""
        self._stdin.close()
        self.raw += self._stdout.read()
        return self.process.wait()

    def close(self) -> None:
        self._limit.cancel()
        self.process.kill()
        self.process.wait()
        for pipe in (self._stdin, self._stdout, self.stderr):
            pipe.close()

    def events(self) -> list[EventDraft]:
        """What a parser makes of everything it said; nothing is left open."""
        memory = str(self.folder / "memory")
        parser = CliParser(counting(), "Julian", MarkerParser, TeamToolEffects(memory, SCREEN))
        for number, uuid in enumerate(self._asked):
            parser.expect(uuid, SentMessage(f"tr_{number}"))
        saids = parser.feed(self.raw) + parser.flush()
        assert_lawful(saids)
        return saids

    def payloads(self, kind: type[Payload]) -> list[Any]:
        return [said.payload for said in self.events() if isinstance(said.payload, kind)]


@contextmanager
def hosting(folder: Path, *options: str) -> Iterator[Host]:
    """A process in a folder; gone at the end."""
    command = [*COMMAND, *(options or STREAMED)]
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    host = Host(process, folder)
    try:
        yield host
    finally:
        host.close()


def typed(type: str, subtype: str | None = None) -> Callable[[Any], bool]:
    return lambda line: line.get("type") == type and subtype in (None, line.get("subtype"))


def of(lines: list[Any], type: str, subtype: str | None = None) -> list[Any]:
    return [line for line in lines if typed(type, subtype)(line)]


def words(lines: list[Any]) -> str:
    """What the main agent said, whole."""
    blocks = [block for line in of(lines, "assistant") for block in line["message"]["content"]]
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")
