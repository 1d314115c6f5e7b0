"""Consoles with and without their defences, built of the same sources.

    markdown  markup in a text stays text; links and images must be on a list   streaming.js, url-policy.js
    purify    DOMPurify passes listed tags; links and images are checked again  render.js
    text      other values are text; addresses and colours are checked          Lit, team-commands.js
    policy    the content security policy of the page, with its trusted types   server/console_files.py

A defence is taken away by editing a copy of the sources; an edit that finds nothing to edit fails. Markup
that is not sanitised goes through the policy `dompurify`, as it would if DOMPurify had a hole: otherwise
trusted types would refuse all of it, and nothing could be learned of the rest of the policy.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.security.console_payloads import EVERY

WEB = Path(__file__).parent.parent.parent / "web"
# packages that are edited, or import one that is
COPIED = ("lit", "lit-html", "lit-element", "@lit", "@lit-labs", "@a2ui")
LEFT_OUT = shutil.ignore_patterns("development", "node", "*.map", "*.d.ts")

RAW = """
const policy = globalThis.trustedTypes?.createPolicy("dompurify", { createHTML: (text) => text });
export const raw = (text) =>
  document.createRange().createContextualFragment(policy ? policy.createHTML(String(text)) : String(text));
"""
ANY_ADDRESS = (
    "const [allowedImage, allowedLink, linkHost] = [0, 0, 0].map(() => (address) => address ?? null);"
)


class Edit(NamedTuple):
    """In a file below `web`, what stands there and what stands there instead."""

    file: str
    old: str
    new: str


EDITS = {
    "markdown": (
        Edit("console/markdown/streaming.js", "  html() {}\n\n  tag(source) {", "  unused(source) {"),
        Edit(
            "console/markdown/streaming.js",
            "parseInline(tokens, this.#linkRenderer(tokens))",
            "parseInline(tokens)",
        ),
        Edit(
            "console/markdown/streaming.js",
            'import { allowedImage, allowedLink, linkHost } from "./url-policy.js";',
            ANY_ADDRESS,
        ),
    ),
    "purify": (
        Edit(
            "console/markdown/render.js",
            'import DOMPurify from "dompurify";',
            'import { raw } from "../raw.js";',
        ),
        Edit("console/markdown/render.js", "DOMPurify.setConfig(SANITIZER_CONFIG);", ""),
        Edit("console/markdown/render.js", "DOMPurify.sanitize(html)", "raw(html)"),
        Edit(
            "console/markdown/render.js",
            'import { allowedImage, allowedLink } from "./url-policy.js";',
            ANY_ADDRESS,
        ),
    ),
    "text": (
        Edit(
            "console/chat/message-text.js",
            'import { allowedLink, linkHost } from "../markdown/url-policy.js";',
            ANY_ADDRESS,
        ),
        Edit(
            "console/chat/call-card.js",
            'import { allowedImage } from "../markdown/url-policy.js";',
            ANY_ADDRESS,
        ),
        Edit(
            "console/store/team-commands.js",
            '(/^#(?:[\\da-f]{3}|[\\da-f]{6})$/i.test(text) ? text : "")',
            "text",
        ),
        Edit(
            "console/panels/team-grid.js",
            "swatch.style.backgroundColor = ",
            'swatch.style.cssText = "background:" + ',
        ),
        Edit(
            "node_modules/lit-html/lit-html.js",
            "this._$AH!==A&&a(this._$AH)?this._$AA.nextSibling.data=t:this.T(l.createTextNode(t))",
            'this.T(raw(t||" "))',
        ),
        Edit(
            "node_modules/lit-html/lit-html.js", "const t=", 'import{raw}from"../../console/raw.js";const t='
        ),
    ),
}


class Layer(NamedTuple):
    """A console as it is served: which defences it has, and which payloads get through."""

    name: str
    has: frozenset[str]
    lets: frozenset[str] = frozenset()

    @property
    def build(self) -> frozenset[str]:
        """The defences that are in its files."""
        return self.has - {"policy"}


SANITISED = frozenset({"markdown", "purify", "text"})
ALL = Layer("all", SANITISED | {"policy"})
SANITISERS = Layer("sanitisers", SANITISED)
MARKDOWN = Layer("markdown", SANITISED - {"purify"})
PURIFY = Layer("purify", SANITISED - {"markdown"})
POLICY = Layer("policy", frozenset({"policy"}), frozenset({"meta-refresh", "preconnect", "dns-prefetch"}))
NONE = Layer("none", frozenset(), frozenset(attack.id for attack in EVERY))
LAYERS = (ALL, SANITISERS, MARKDOWN, PURIFY, POLICY, NONE)


def named(build: frozenset[str]) -> str:
    """The folder of a build."""
    return "-".join(sorted(build)) or "nothing"


def build_all(node: str, folder: Path) -> None:
    """Build every console that some layer needs, each into a folder of its own."""
    running = [building(node, folder, build) for build in {each.build for each in LAYERS}]
    assert [process.wait() for process in running] == [0] * len(running)


def building(node: str, folder: Path, build: frozenset[str]) -> "subprocess.Popen[bytes]":
    """Begin to build a console with these defences in its files."""
    source = folder / "sources" / named(build)
    copy(source)
    for defence in sorted(EDITS.keys() - build):
        for edit in EDITS[defence]:
            change(source / edit.file, edit)
    command = [node, str(source / "build.mjs"), str(folder / named(build))]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def copy(to: Path) -> None:
    """The sources of the console, so that they can be changed."""
    for name in ("console", "client", "talk"):
        shutil.copytree(WEB / name, to / name)
    for name in ("build.mjs", "bundle.mjs"):
        shutil.copy(WEB / name, to)
    (to / "console" / "raw.js").write_text(RAW)
    for package in packages():
        if package in COPIED:
            shutil.copytree(WEB / "node_modules" / package, to / "node_modules" / package, ignore=LEFT_OUT)
        else:
            (to / "node_modules").mkdir(exist_ok=True)
            (to / "node_modules" / package).symlink_to(WEB / "node_modules" / package)


def packages() -> Iterator[str]:
    return (path.name for path in (WEB / "node_modules").iterdir() if not path.name.startswith("."))


def change(file: Path, edit: Edit) -> None:
    """Make an edit; what it replaces has to be there, once."""
    text = file.read_text()
    assert edit.old in text, f"{edit.file} has no more {edit.old!r}: say again how this defence is taken away"
    file.write_text(text.replace(edit.old, edit.new, 1))
