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

MAX_HEAD_CHARS = 1 << 16  # meta tags stand in the head of a page
_META = re.compile(r"""<meta\s((?:[^<>"']|"[^"]{0,2000}+"|'[^']{0,2000}+'){1,2000}+)>""", re.IGNORECASE)
_META_ATTRIBUTE = re.compile(r"""(?<![a-z])([a-z]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_META_PREFIX = "artifact-"
# an option of curl for a body, alone or last of several short ones (`-sd`), and the body: quoted or one word
_CURL_BODY = re.compile(
    r"""\s(?:-[A-Za-z]*d|--(?:data(?:-raw|-binary|-ascii|-urlencode)?|json)(?=[\s=]))"""
    r"""(?:[\s=]*(?:'([^']*+)'|"((?:[^"\\]|\\.)*+)")|[\s=]+([^\s'"-][^\s'"]*+))""",
    re.DOTALL,
)
_FACE = re.compile(r"\bFACE (\w+)")


class ToolEffects:
    """Which folder holds the artifacts and which address is the screen's; None: there is none."""

    def __init__(self, artifact_dir: str | None = None, screen_url: str | None = None) -> None:
        self._artifact_dir, self._screen_url = artifact_dir, screen_url

    def on_call(self, call: ToolCall) -> list[Payload]:
        """What a call says by itself."""
        command = parse_screen_command(call, self._screen_url) if self._screen_url else None
        return [command] if command else []

    def on_result(self, call: ToolCall, result: ToolResult, tool_report: Any) -> list[Payload]:
        """What is known with the result of a call; `account` is the tool's own, if it gave one."""
        artifact = (
            parse_artifact_write(call, result, tool_report, self._artifact_dir)
            if self._artifact_dir
            else None
        )
        return [artifact] if artifact else []


def parse_artifact_write(
    call: ToolCall, result: ToolResult, tool_report: Any, artifact_dir: str
) -> ArtifactWrite | None:
    """The artifact that a call wrote into the memory folder; a relative path begins beside the folder."""
    path, content = call.args.get("file_path"), call.args.get("content")
    if call.tool != "Write" or not result.ok or type(path) is not str or type(content) is not str:
        return None
    folder = posixpath.normpath(artifact_dir)
    full = posixpath.normpath(posixpath.join(posixpath.dirname(folder), path))
    filename = full.removeprefix(folder + "/")
    if filename == full:
        return None
    return ArtifactWrite(
        filename=filename,
        path=f"{posixpath.basename(folder)}/{filename}",
        is_new=not (isinstance(tool_report, dict) and tool_report.get("type") == "update"),
        size_bytes=len(content.encode(errors="replace")),
        meta=parse_artifact_meta(content),
    )


def parse_artifact_meta(page: str) -> ArtifactMeta | None:
    """What the `artifact-*` meta tags of a page say; the first of a name counts."""
    import html  # who writes no artifacts does not pay for it

    found: dict[str, str] = {}
    for tag in _META.finditer(page, 0, MAX_HEAD_CHARS):
        pairs = {
            name.lower(): html.unescape(one or other) for name, one, other in _META_ATTRIBUTE.findall(tag[1])
        }
        name = pairs.get("name", "").lower()
        if name.startswith(_META_PREFIX) and "content" in pairs:
            found.setdefault(name.removeprefix(_META_PREFIX), pairs["content"])
    known = {name: found[name] for name in ArtifactMeta.__struct_fields__ if name in found}
    return ArtifactMeta(**known) if known else None


def parse_screen_command(call: ToolCall, screen_url: str) -> ScreenCommand | None:
    """The command that a call sends to the screen: the body it posts, or else all of it."""
    command = call.args.get("command")
    if call.tool != "Bash" or type(command) is not str or screen_url not in command:
        return None
    curl = max(0, command.rfind("curl", 0, command.index(screen_url)))  # another program may have a `-d` too
    body = _CURL_BODY.search(command, curl)
    said = next((part for part in body.groups() if part is not None), command) if body else command
    face = _FACE.search(said)
    return ScreenCommand(command=said, expression=as_name(face[1]) if face else None)
