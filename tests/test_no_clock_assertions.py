"""No test outside tests/soak compares times: a test passes on a machine that is ten times slower and busy."""

from pathlib import Path

import pytest

from tests.support.clock_scan import python_findings, script_findings
from tests.support.coverage_pause import without_coverage

ROOT = Path(__file__).parent.parent
OWN = {Path(__file__), ROOT / "tests/support/clock_scan.py"}  # their samples are what they look for


def scanned() -> dict[Path, list[str]]:
    """The findings of every file of the tests, soak left out."""
    folders = [ROOT / "tests", ROOT / "web/tests"]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    wanted = [path for path in files if "soak" not in path.parts and path not in OWN]
    python = {path: python_findings(path.read_text()) for path in wanted if path.suffix == ".py"}
    scripts = {path: script_findings(path.read_text()) for path in wanted if path.suffix in (".js", ".mjs")}
    return python | scripts


@without_coverage()
def test_tests_outside_soak_compare_no_times_and_explain_each_sleep() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}" for path, lines in scanned().items() for line in lines]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "sample",
    [
        "assert time.monotonic() - begun < 5",
        "begun = perf_counter()\nwork()\ntook_s = perf_counter() - begun\nassert took_s < 2",
        "begun, other = time.process_time(), 1\nassert work() or begun > 3",
        "times.append(time.time() - begun)\nassert min(times) <= 0.1",
        "reached['model'] = loop.time()\nassert max(*reached) < 1",
        "def took():\n    begun = monotonic()\n    return monotonic() - begun\nassert took() < 2.5 * took()",
        "async def took():\n    return get_running_loop().time()\nwhile await took() < 3:\n    pass",
        "spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime\nassert spent < 1",
        "clock = asyncio.get_running_loop().time\nbegun = clock()\nassert clock() - begun >= 0.19",
        "time.sleep(0.1)",
        "await asyncio.sleep(PAUSE_S)",
        "page.wait_for_timeout(100)",
        "SCRIPT = 'performance.now() - begun < 5'",
    ],
)
def test_control_a_python_sample_that_compares_times_is_found(sample: str) -> None:
    assert python_findings(sample)


@pytest.mark.parametrize(
    "sample", ["assert(performance.now() - begun < 120);", "const took = Date.now() - begun;"]
)
def test_control_a_script_that_reads_a_clock_is_found(sample: str) -> None:
    assert script_findings(sample)


@pytest.mark.parametrize(
    "sample",
    [
        "code = auth.sign_in_code(time.time())\nassert code == 'x'",
        "good = jwt.encode({'exp': time.time() + 60}, secret)\nassert good",
        "await asyncio.sleep(0)",
        "await asyncio.sleep(PAUSE_S)  # the pace of a model",
        "async with asyncio.timeout(HANG_S):\n    await work()",
    ],
)
def test_control_a_sample_that_compares_no_time_is_left_alone(sample: str) -> None:
    assert python_findings(sample) == []
