"""The readers of `blocks` in both languages, asked for everything they know."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnlog.cli.transcript import build_transcript
from turnlog.client.assembler import Assembler
from turnlog.client.blocks import AssembledBlock

READER = Path(__file__).parents[2] / "web" / "tests" / "reader.mjs"

Message = tuple[str, str]  # data, SSE id
Ask = Callable[[dict[str, Any]], dict[str, Any]]


def shown(blocks: list[AssembledBlock]) -> list[object]:
    return [[block.type, block.agent, block.id, block.void, block.text] for block in blocks]


def assemble(messages: list[Message]) -> dict[str, object]:
    assembler = Assembler()
    changed = [shown(assembler.feed(*message)) for message in messages]
    opened = assembler.as_json()
    left = shown(assembler.flush())
    return {
        "changed": changed,
        "open": opened,
        "left": left,
        "json": assembler.as_json(),
        "transcript": transcript_text(assembler),
    }


def transcript_text(assembler: Assembler) -> str:
    return "\n".join(map(str, build_transcript(assembler.agents)))


def exact(value: object) -> str:
    """JSON in which 1, 1.0 and true are three things."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


@contextmanager
def asking(node: str) -> Iterator[Ask]:
    """The readers in JavaScript, as one process for all questions."""
    with subprocess.Popen([node, str(READER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        requests, answers = process.stdin, process.stdout

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()
            line = answers.readline()
            assert line, "the reader ended; its error is above"
            decoded: dict[str, Any] = json.loads(line)
            return decoded

        yield answer
        requests.close()
        assert process.wait() == 0
