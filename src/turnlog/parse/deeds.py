"""What an agent did with its tools, as events of the team: artifacts written, commands to a screen. Pure.

A `Write` under the memory folder is an `artifact.write` once its result says that it succeeded; whether the
file is new, the tool's own account says. A `Bash` command that names the screen's address is a
`screen.command` as soon as it is called. Paths are POSIX paths, `..` resolved: nothing outside the folder
counts. Meta tags are looked for in the first 64 Ki characters.
"""

import posixpath
import re
from typing import Any

from turnlog.events import ArtifactWrite, Payload, ScreenCommand, ToolCall, ToolResult
from turnlog.events.team import ArtifactMeta
from turnlog.parse.json_values import as_name

HEAD_CHARS = 1 << 16  # meta tags stand in the head of a page
_META = re.compile(r"""<meta\s((?:[^<>"']|"[^"]{0,2000}+"|'[^']{0,2000}+'){1,2000}+)>""", re.IGNORECASE)
_PAIR = re.compile(r"""(?<![a-z])([a-z]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_PREFIX = "artifact-"
# an option of curl for a body, alone or last of several short ones (`-sd`), and the body: quoted or one word
_BODY = re.compile(
    r"""\s(?:-[A-Za-z]*d|--(?:data(?:-raw|-binary|-ascii|-urlencode)?|json)(?=[\s=]))"""
    r"""(?:[\s=]*(?:'([^']*+)'|"((?:[^"\\]|\\.)*+)")|[\s=]+([^\s'"-][^\s'"]*+))""",
    re.DOTALL,
)
_FACE = re.compile(r"\bFACE (\w+)")


class Deeds:
    """Which folder holds the artifacts and which address is the screen's; None: there is none."""

    def __init__(self, memory: str | None = None, screen: str | None = None) -> None:
        self._memory, self._screen = memory, screen

    def called(self, call: ToolCall) -> list[Payload]:
        """What a call says by itself."""
        command = screen_command(call, self._screen) if self._screen else None
        return [command] if command else []

    def answered(self, call: ToolCall, result: ToolResult, account: Any) -> list[Payload]:
        """What is known with the result of a call; `account` is the tool's own, if it gave one."""
        artifact = artifact_write(call, result, account, self._memory) if self._memory else None
        return [artifact] if artifact else []


def artifact_write(call: ToolCall, result: ToolResult, account: Any, memory: str) -> ArtifactWrite | None:
    """The artifact that a call wrote into the memory folder; a relative path begins beside the folder."""
    path, content = call.args.get("file_path"), call.args.get("content")
    if call.tool != "Write" or not result.ok or type(path) is not str or type(content) is not str:
        return None
    folder = posixpath.normpath(memory)
    full = posixpath.normpath(posixpath.join(posixpath.dirname(folder), path))
    filename = full.removeprefix(folder + "/")
    if filename == full:
        return None
    return ArtifactWrite(
        filename=filename,
        path=f"{posixpath.basename(folder)}/{filename}",
        is_new=not (isinstance(account, dict) and account.get("type") == "update"),
        size_bytes=len(content.encode(errors="replace")),
        meta=artifact_meta(content),
    )


def artifact_meta(page: str) -> ArtifactMeta | None:
    """What the `artifact-*` meta tags of a page say; the first of a name counts."""
    import html  # who writes no artifacts does not pay for it

    found: dict[str, str] = {}
    for tag in _META.finditer(page, 0, HEAD_CHARS):
        pairs = {name.lower(): html.unescape(one or other) for name, one, other in _PAIR.findall(tag[1])}
        name = pairs.get("name", "").lower()
        if name.startswith(_PREFIX) and "content" in pairs:
            found.setdefault(name.removeprefix(_PREFIX), pairs["content"])
    known = {name: found[name] for name in ArtifactMeta.__struct_fields__ if name in found}
    return ArtifactMeta(**known) if known else None


def screen_command(call: ToolCall, address: str) -> ScreenCommand | None:
    """The command that a call sends to the screen: the body it posts, or else all of it."""
    command = call.args.get("command")
    if call.tool != "Bash" or type(command) is not str or address not in command:
        return None
    curl = max(0, command.rfind("curl", 0, command.index(address)))  # another program may have a `-d` too
    body = _BODY.search(command, curl)
    said = next((part for part in body.groups() if part is not None), command) if body else command
    face = _FACE.search(said)
    return ScreenCommand(command=said, expression=as_name(face[1]) if face else None)
