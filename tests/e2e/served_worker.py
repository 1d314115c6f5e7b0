"""A process that answers the sessions of `support`: `served_worker URL TOKEN EFFECTS [sync]`.

Its agent does what the message says. What its tools do, and that a turn was cancelled, is appended to a file,
which has the effects of all workers, and printed.
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import turnlog
from turnlog.adapters import Approved, Finished, ForeignAgent, Part, Paused, Question
from turnlog.adapters.part_output import PartOutput
from turnlog.parse import AgentInfo


class CommandRunner:
    """An agent whose state is the list of the messages that it has read."""

    name = "Support"
    source = "commands"
    version = "1.0"

    def __init__(self, effects: Path) -> None:
        self._effects = effects

    def can_read(self, version: str) -> bool:
        return version == self.version

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        return AgentInfo(self.name, "commands-1")

    def note(self, effect: str) -> None:
        with self._effects.open("a") as file:
            file.write(f"{os.getpid()} {effect}\n")
        sys.stdout.write(f"{effect}\n")
        sys.stdout.flush()

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        history: list[str] = json.loads(part.state or b"[]")
        if part.message is not None:
            history.append(part.message)
        for file in part.files:
            self.note(f"file {file.name} {file.media_type} {sha256(file.data).hexdigest()}")
        state = json.dumps(history).encode()
        word, _, rest = history[-1].partition(" ")
        try:
            return await self._act(word, rest, part, output, state)
        except asyncio.CancelledError:
            self.note(f"cancelled {word}")
            output.save_state(state)
            raise

    async def _act(
        self, word: str, rest: str, part: Part, output: PartOutput, state: bytes
    ) -> Finished | Paused:
        builder, root = output.builder, output.root
        if word == "delete" and not part.answers:
            await output.report(builder.call, root, "delete", {"path": rest}, "call_1")
            return Paused(state, [Question(root, "call_1")])
        if word == "delete":
            if isinstance(part.answers[root.agent_id, "call_1"], Approved):
                self.note(f"delete {rest}")
                await output.report(builder.result, root, "call_1", "deleted")
        elif word == "search":
            await output.report(builder.call, root, "search", {"q": rest}, "call_1")
            child = builder.start_child(root, "call_1", AgentInfo("Searcher", prompt=rest))
            await output.report(builder.text, child, "Green.")
            self.note(f"search {rest}")
            await output.report(builder.result, root, "call_1", "green")
        elif word == "hang":
            await output.report(builder.text, root, "Working")
            await output.report(builder.call, root, "work", {}, "call_1")
            await output.report(builder.complete_message, root)
            self.note("hangs")
            await asyncio.get_running_loop().create_future()
        elif word == "note":
            for piece in ("Done.<agent-ev", f"ent type=\"note\" data='{json.dumps({'text': rest})}' />"):
                await output.report(builder.text, root, piece)
            return Finished(state)
        elif word == "fail":
            raise ValueError("no such order")
        self.note(f"answered {word} {rest}".strip())
        for piece in ("You ", "said: ", " | ".join(json.loads(state))):
            await output.report(builder.text, root, piece)
        return Finished(state)


async def serve(url: str, token: str, agent: ForeignAgent) -> None:
    async with turnlog.connect(url, token) as server:
        serving = asyncio.create_task(server.serve("support", agent))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving


def serve_sync(url: str, token: str, agent: ForeignAgent) -> None:
    with turnlog.connect_sync(url, token) as server, suppress(KeyboardInterrupt):
        server.serve("support", agent)


def main(url: str, token: str, effects: str, *options: str) -> None:
    agent = ForeignAgent(CommandRunner(Path(effects)))
    if "sync" in options:
        serve_sync(url, token, agent)
    else:
        asyncio.run(serve(url, token, agent))


if __name__ == "__main__":
    main(*sys.argv[1:])
