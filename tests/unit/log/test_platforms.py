"""Logs on systems that lack what Linux has: each test takes it away in a process of its own."""

import subprocess
import sys
import textwrap
from pathlib import Path

WITHOUT_FALLOCATE = "import os; del os.posix_fallocate"  # macOS
WITHOUT_FCNTL = "import sys; sys.modules['fcntl'] = None"  # Windows
APPEND = """
    import asyncio
    from turnlog.events import CATALOG
    from turnlog.log import open_log

    async def append():
        log = await open_log(sys.argv[1])
        session = await log.create("shop")
        event = CATALOG.build_event("ui.message", {"text": "hi"}, id="evt_1", origin="ui")
        print((await log.append(session, [event])).seqs)
        await log.close()

    asyncio.run(append())
"""


def run(before: str, log_url: str) -> subprocess.CompletedProcess[str]:
    script = f"import sys\n{before}\n{textwrap.dedent(APPEND)}"
    return subprocess.run([sys.executable, "-c", script, log_url], capture_output=True, text=True)


def test_sqlite_log_without_posix_fallocate_takes_events(tmp_path: Path) -> None:
    result = run(WITHOUT_FALLOCATE, f"sqlite:///{tmp_path}/log.db")
    assert (result.stdout, result.stderr) == ("[0]\n", "")


def test_mark_without_posix_fallocate_has_its_blocks_on_the_disk(tmp_path: Path) -> None:
    run(WITHOUT_FALLOCATE, f"sqlite:///{tmp_path}/log.db")
    status = (tmp_path / "log.db.mark").stat()
    assert status.st_blocks * 512 >= status.st_size > 4096


def test_memory_log_without_fcntl_takes_events() -> None:
    result = run(WITHOUT_FCNTL, "memory:")
    assert (result.stdout, result.stderr) == ("[0]\n", "")


def test_sqlite_log_without_fcntl_says_what_is_missing(tmp_path: Path) -> None:
    result = run(WITHOUT_FCNTL, f"sqlite:///{tmp_path}/log.db")
    assert result.stderr.endswith(
        "turnlog.errors.StoreError: a SQLite log cannot be written on this system, which has no fcntl\n"
    )
