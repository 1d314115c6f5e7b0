"""A log by its address: in memory, in a file, behind a store that a package brings, or not at all."""

import importlib
from pathlib import Path

import pytest

from tests.unit.log.delegates import scenario
from turnlog.errors import CallerError, StoreError
from turnlog.events import decode_envelope
from turnlog.log import envelope_json, open_log
from turnlog.testing.factories import durable_events

SESSION = "sess_1"


@scenario
async def test_a_log_in_memory() -> None:
    log = await open_log("memory:")
    session = await log.create("t")
    assert (await log.append(session, durable_events("a"))).seqs == [0]
    assert decode_envelope(envelope_json((await log.read(session))[0])).id == "evt_a"
    await log.close()


def test_a_log_in_a_file_by_its_path_relative_or_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @scenario
    async def run() -> None:
        for url in ("sqlite:///some/log.db", f"sqlite:///{tmp_path}/a%20b.db"):
            log = await open_log(url)
            await log.create("t", SESSION)
            await log.close()
            reader = await open_log(url, writable=False)
            assert [head.session_id for head in await reader.sessions()] == [SESSION]
            with pytest.raises(StoreError, match="reading only"):
                await reader.append(SESSION, durable_events("a"))
            await reader.close()

    monkeypatch.chdir(tmp_path)
    run()
    assert (tmp_path / "some" / "log.db").exists()
    assert (tmp_path / "a b.db").exists()


OPENERS = """
from turnlog.log import MemoryStore

opened = []


def open_notes(url, *, writable):
    opened.append((url, writable))
    return MemoryStore()
"""


def test_a_package_brings_a_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is installed as far as Python can see: a module, and the folder that says what is in it."""
    about = tmp_path / "note_stores-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: note-stores\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[turnlog.stores]\nnotes = note_stores:open_notes\n")
    (tmp_path / "note_stores.py").write_text(OPENERS)
    monkeypatch.syspath_prepend(tmp_path)

    @scenario
    async def run() -> None:
        log = await open_log("notes://host/desk?fast=1")
        assert await log.create("demo")
        await log.close()
        await (await open_log("notes:x", writable=False)).close()

    run()
    found = importlib.import_module("note_stores").opened
    assert found == [("notes://host/desk?fast=1", True), ("notes:x", False)]


URLS = [
    "",
    "log.db",
    "/log.db",
    "sqlite:",
    "sqlite://host/log.db",
    "sqlite:///",
    "memory://x",
    "nats://x",
    "sqlite:///a%00",
]


@pytest.mark.parametrize(
    "url",
    [
        *URLS,
        pytest.param("sqlite:log.db"),
    ],
)
def test_a_log_that_nobody_can_open(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @scenario
    async def run() -> None:
        with pytest.raises(CallerError, match=r"expected .*(sqlite:///turnlog\.db|memory:)"):
            await (await open_log(url)).close()

    monkeypatch.chdir(tmp_path)
    run()


@pytest.mark.parametrize("rest", ["?", "?y", "?mode=ro", "#", "#top", "?a#b"])
def test_sqlite_address_with_something_behind_the_path_is_refused(
    rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @scenario
    async def run() -> None:
        with pytest.raises(
            CallerError, match=r"expected nothing after the path; in a file name write \? as %3F"
        ):
            await open_log(f"sqlite:///log.db{rest}")

    monkeypatch.chdir(tmp_path)
    run()
    assert list(tmp_path.iterdir()) == []


def test_sqlite_address_with_a_coded_question_mark_names_a_file_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @scenario
    async def run() -> None:
        await (await open_log("sqlite:///what%3F.db")).close()

    monkeypatch.chdir(tmp_path)
    run()
    assert (tmp_path / "what?.db").exists()
