"""Team events from the tool calls of an agent: written artifacts, and commands to a screen. Pure.

A `Write` into the artifact folder is an `artifact.write` once its result reports success; the tool's own
report says whether the file is new. A `Bash` command that contains the screen's address is a `screen.command`
as soon as it is called. Paths are POSIX paths with `..` resolved: files outside the folder are ignored. Meta
tags are searched in the first 64 Ki characters.
"""

import posixpath
import re
from typing import Any

from turnlog.events import Payload, ToolCall, ToolResult
from turnlog.parse.json_values import as_name
from turnlog.team.events import ArtifactMeta, ArtifactWrite, ScreenCommand

MAX_HEAD_CHARS = 1 << 16  # meta tags are in the head of a page
_META = re.compile(r"""<meta\s((?:[^<>"']|"[^"]{0,2000}+"|'[^']{0,2000}+'){1,2000}+)>""", re.IGNORECASE)
_META_ATTRIBUTE = re.compile(r"""(?<![a-z])([a-z]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_META_PREFIX = "artifact-"
# curl's option for a body, alone or the last of several short ones (`-sd`), and the body: quoted or one word
_CURL_BODY = re.compile(
    r"""\s(?:-[A-Za-z]*d|--(?:data(?:-raw|-binary|-ascii|-urlencode)?|json)(?=[\s=]))"""
    r"""(?:[\s=]*(?:'([^']*+)'|"((?:[^"\\]|\\.)*+)")|[\s=]+([^\s'"-][^\s'"]*+))""",
    re.DOTALL,
)
_FACE = re.compile(r"\bFACE (\w+)")


class TeamToolEffects:
    """Finds artifacts and screen commands. Without a folder, or an address, there are none."""

    def __init__(self, artifact_dir: str | None = None, screen_url: str | None = None) -> None:
        self._artifact_dir = artifact_dir
        self._screen_url = screen_url

    def on_call(self, call: ToolCall) -> list[Payload]:
        if not self._screen_url:
            return []
        command = parse_screen_command(call, self._screen_url)
        return [command] if command else []

    def on_result(self, call: ToolCall, result: ToolResult, tool_report: Any) -> list[Payload]:
        if not self._artifact_dir:
            return []
        artifact = parse_artifact_write(call, result, tool_report, self._artifact_dir)
        return [artifact] if artifact else []


def parse_artifact_write(
    call: ToolCall, result: ToolResult, tool_report: Any, artifact_dir: str
) -> ArtifactWrite | None:
    """Return the artifact that a call wrote; None if it wrote none.

    A relative path starts in the parent of the artifact folder, where the process runs.
    """
    path = call.args.get("file_path")
    content = call.args.get("content")
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
    """Return the values of the `artifact-*` meta tags of a page, the first of each name; None without any."""
    import html  # for artifacts only, to keep the import fast

    values: dict[str, str] = {}
    for tag in _META.finditer(page, 0, MAX_HEAD_CHARS):
        attributes: dict[str, str] = {}
        for name, double_quoted, single_quoted in _META_ATTRIBUTE.findall(tag[1]):
            attributes[name.lower()] = html.unescape(double_quoted or single_quoted)
        meta_name = attributes.get("name", "").lower()
        if meta_name.startswith(_META_PREFIX) and "content" in attributes:
            values.setdefault(meta_name.removeprefix(_META_PREFIX), attributes["content"])

    fields = {name: values[name] for name in ArtifactMeta.__struct_fields__ if name in values}
    return ArtifactMeta(**fields) if fields else None


def parse_screen_command(call: ToolCall, screen_url: str) -> ScreenCommand | None:
    """Return the command that a call sends to the screen: the body that it posts, or else its whole text."""
    shell_command = call.args.get("command")
    if call.tool != "Bash" or type(shell_command) is not str or screen_url not in shell_command:
        return None

    # Search from `curl` on: another program before it may have an option `-d` too.
    start = max(0, shell_command.rfind("curl", 0, shell_command.index(screen_url)))
    body = _CURL_BODY.search(shell_command, start)
    command = shell_command
    if body is not None:
        command = next((part for part in body.groups() if part is not None), shell_command)
    face = _FACE.search(command)
    return ScreenCommand(command=command, expression=as_name(face[1]) if face else None)
