"""The tools of the stand-in. They work for real, in its own folder and nowhere else; no shell is ever run."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from turnlog_examples.office.instructions import SCREEN

Args = dict[str, Any]
_REMOVE = re.compile(r"rm ([\w./-]+)")


class Done(NamedTuple):
    """What a tool brought: the text for the model, and its own account for the host."""

    text: str
    account: Any
    ok: bool = True


class Desk:
    """A folder, and what can be done in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def use(self, tool: str, args: Args) -> Done:
        """Run a tool; what cannot be done is told, not raised."""
        run = TOOLS.get(tool)
        try:
            return run(self, args) if run else failed(f"There is no tool {tool}.")
        except OSError as error:
            return failed(f"{type(error).__name__}: {error.strerror}")

    def write(self, args: Args) -> Done:
        path = self._inside(args["file_path"])
        if path is None:
            return failed("This is outside of the folder.")
        kind = "update" if path.exists() else "create"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(args["content"])
        account = {"type": kind, "filePath": str(path), "content": args["content"]}
        return Done(f"{kind}d {args['file_path']}", account)

    def read(self, args: Args) -> Done:
        path = self._inside(args["file_path"])
        if path is None:
            return failed("This is outside of the folder.")
        text = path.read_text()
        return Done(text, {"type": "text", "file": {"filePath": str(path), "content": text}})

    def bash(self, args: Args) -> Done:
        """The screen says ok to everything but an unknown command; `rm` removes a file."""
        command = str(args["command"])
        if SCREEN in command:
            said = command.partition("-d '")[2].rstrip("'")
            return shell("ok") if said.startswith(("FACE ", "BG ")) else failed(f"unknown command {said}")
        match = _REMOVE.fullmatch(command)
        path = self._inside(match[1]) if match else None
        if path is None:
            return failed(f"exit code 127: {command}")
        path.unlink()
        return shell("")

    def _inside(self, name: str) -> Path | None:
        path = (self._folder / name).resolve()
        return path if path.is_relative_to(self._folder) else None


def failed(text: str) -> Done:
    """What is said of a tool that could not."""
    return Done(text, f"Error: {text}", ok=False)


def shell(output: str) -> Done:
    """What a command printed."""
    return Done(output, {"stdout": output, "stderr": "", "interrupted": False})


def allowed(tool: str, args: Args) -> bool:
    """Whether a tool runs without anybody being asked."""
    return tool != "Bash" or SCREEN in str(args.get("command"))


TOOLS: dict[str, Callable[[Desk, Args], Done]] = {"Write": Desk.write, "Read": Desk.read, "Bash": Desk.bash}
