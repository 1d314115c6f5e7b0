"""The program: the stand-in of the demo with more faults.

/die <lines>       the process is killed after so many more lines, whatever they are
"""

import signal

from tests.support.claude_standin.faults import FAULTS
from turnlog_examples.demo_office.mishaps import number_in
from turnlog_examples.demo_office.player import Player
from turnlog_examples.demo_office.script import Say, Turn
from turnlog_examples.demo_office.standin import COMMANDS, Process, leave, run, write_stdout


class Fuse:
    """Counts the lines of a process, and kills it when `lines` of them have come."""

    def __init__(self) -> None:
        self.lines = 0

    def write(self, data: bytes) -> None:
        write_stdout(data)
        self.lines -= 1
        if self.lines == 0:
            leave(-signal.SIGKILL)

    async def die(self, process: Process, text: str, player: Player) -> None:
        """A turn after which there is not much time left."""
        await process.play(as_you_like(), player)
        self.lines = number_in(text) + 1


def as_you_like() -> Turn:
    yield [Say("As you like.")]


def main() -> None:
    fuse = Fuse()
    run(FAULTS, {**COMMANDS, "/die": fuse.die}, fuse.write)
