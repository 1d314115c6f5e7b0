"""Fuzz every target for some seconds: `python -m tests.fuzz [SECONDS] [NAME ...]`; `make fuzz` runs it.

An input that breaks a law stays in `build/fuzz/NAME`, and the exit code is 1. A corpus file is an input that
reaches code that no other file reaches; new ones are kept with `python -m tests.fuzz.keep`.
"""

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.fuzz.seeds import seeds_of
from tests.fuzz.targets import CORPUS, NAMES

WORK = Path(__file__).parents[2] / "build" / "fuzz"
MAX_INPUT_BYTES = 1024
MAX_MEMORY_MB = 1024
MAX_UNIT_S = 30  # one input that takes longer counts as one that does not end


def fuzz(name: str, seconds: int) -> bool:
    """Fuzz one target; return whether its laws held."""
    folder = WORK / name
    found = folder / "found"
    found.mkdir(parents=True, exist_ok=True)
    for seed in seeds_of(name):
        (found / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    flags = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-rss_limit_mb={MAX_MEMORY_MB}",
        f"-timeout={MAX_UNIT_S}",
        f"-artifact_prefix={folder}/",
    ]
    command = [sys.executable, "-m", "tests.fuzz.one", name, str(found), str(CORPUS / name), *flags]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        runs = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
        print(f"{name}: {runs[-1] if runs else 'done'}", flush=True)
        return True
    print(
        f"{name}: broke a law; the input is in {folder}\n{done.stdout[-4000:]}{done.stderr[-2000:]}",
        flush=True,
    )
    return False


def main(seconds: str = "60", *names: str) -> int:
    if importlib.util.find_spec("atheris") is None:
        print("not fuzzed: there is no atheris for this platform; `make test` runs the kept inputs")
        return 0
    held = [fuzz(name, int(seconds)) for name in names or NAMES]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
