"""Single-bit flips in the files of a log: each is reported, or changes nothing that is read.

SQLite itself lets most of them pass. Half hit a log that was closed, in pages of 512 bytes so that few bits
are idle; half a log whose writer died and left part of it in the WAL. `tests/soak/test_faults.py` has
thousands.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path

import pytest

from tests.faults.image import SESSIONS, Contents, Image, build, closed, contents, judge, place
from turnlog.log import Damage

TIMES = 5


def flipped(image: Image, suffix: str, bit: int) -> Image:
    content = bytearray(image[suffix])
    content[bit // 8] ^= 1 << bit % 8
    return {**image, suffix: bytes(content)}


def choices(image: Image, counts: Mapping[str, int], seed: int) -> list[tuple[str, int]]:
    """So many random bits of each file, without the room to grow at the end of the mark."""
    chance = random.Random(seed)
    sizes = {suffix: len(content.rstrip(b"\0")) for suffix, content in image.items()}
    return [
        (suffix, chance.randrange(sizes[suffix] * 8))
        for suffix, count in counts.items()
        for _ in range(count)
    ]


async def flip_all(image: Image, folder: Path, flips: list[tuple[str, int]]) -> Counter[str]:
    """Flip, read everything, judge; how many flips in each file were reported."""
    path = folder / "copy" / "log.db"
    path.parent.mkdir()
    place(image, path)
    original = await contents(path)
    assert not original.reported
    reported: Counter[str] = Counter()
    failures = []
    for suffix, bit in flips:
        place(flipped(image, suffix, bit), path)
        try:
            found = await contents(path)
            judge(original, found)
            reported[suffix] += found.reported
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a failure, and there may be more
            failures.append(f"bit {bit} of log.db{suffix}: {type(error).__name__}: {str(error)[:80]}")
    assert not failures, "\n".join([f"{len(failures)} of {len(flips)}", *failures])
    return reported


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Every flip that is found is logged; that is not worth keeping."""
    caplog.set_level(logging.CRITICAL, "turnlog.log")


def flips_in_a_closed_log(folder: Path, times: int, seed: int) -> Counter[str]:
    """Flip 10 bits, so many times; how many flips in each file were reported."""

    async def run() -> Counter[str]:
        image = await closed(await build(folder / "built", page_bytes=512), folder / "closed")
        return await flip_all(image, folder, choices(image, {"": 9 * times, ".mark": times}, seed))

    return asyncio.run(run())


def flips_in_a_log_whose_writer_died(folder: Path, times: int, seed: int) -> Counter[str]:
    async def run() -> Counter[str]:
        image = await build(folder / "built", page_bytes=4096)
        counts = {"": 2 * times, "-wal": 7 * times, ".mark": times}
        return await flip_all(image, folder, choices(image, counts, seed))

    return asyncio.run(run())


def test_flips_in_a_closed_log_are_reported_or_change_nothing(memory_path: Path) -> None:
    assert flips_in_a_closed_log(memory_path, TIMES, 1)[""] > 5 * TIMES, "the flips do not hit what is read"


def test_flips_in_a_log_whose_writer_died_are_reported_or_change_nothing(memory_path: Path) -> None:
    reported = flips_in_a_log_whose_writer_died(memory_path, TIMES, 2)
    assert reported["-wal"] > 6 * TIMES, "the flips do not hit what is read"


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    folder = tmp_path_factory.mktemp("intact")

    async def run() -> Contents:
        await build(folder / "built", page_bytes=4096)
        return await contents(folder / "built" / "log.db")

    return asyncio.run(run())


def test_the_judge_sees_a_row_that_is_missing(intact: Contents) -> None:
    found = deepcopy(intact)
    del found.rows(SESSIONS[1])[20]
    with pytest.raises(AssertionError, match="nobody was told"):
        judge(intact, found)
    found.verified.append(Damage("", -1, -1, "something, but not what"))
    with pytest.raises(AssertionError, match="nobody was told which"):
        judge(intact, found)


def test_the_judge_sees_a_row_that_is_wrong(intact: Contents) -> None:
    found = deepcopy(intact)
    row = found.rows(SESSIONS[1])[20]
    found.rows(SESSIONS[1])[20] = row._replace(frame=row.frame.replace(b"data", b"dada", 1))
    found.verified.append(Damage("", -1, -1, "something"))
    with pytest.raises(AssertionError, match="wrong data"):
        judge(intact, found)


def test_the_judge_sees_readers_that_are_not_reset(intact: Contents) -> None:
    found = deepcopy(intact)
    row = found.rows(SESSIONS[1]).pop(20)
    found.damages.append(Damage(SESSIONS[1], row.seq, row.seq, "lost"))
    with pytest.raises(AssertionError, match="the epoch is the same"):
        judge(intact, found)
