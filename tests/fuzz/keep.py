"""Keep of what the fuzzer found a few inputs that together reach all code that was reached, as often.

`python -m tests.fuzz.keep [NAME ...]` replaces the corpus of every target, or of those that are named.
"""

import shutil
import subprocess
import sys

from tests.fuzz.__main__ import MAX_INPUT_BYTES, WORK
from tests.fuzz.targets import CORPUS, MAX_FILES, NAMES


def keep(name: str) -> None:
    kept = WORK / name / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    folders = [str(folder) for folder in (CORPUS / name, WORK / name / "found") if folder.is_dir()]
    flags = ["-set_cover_merge=1", f"-max_len={MAX_INPUT_BYTES}"]
    command = [sys.executable, "-m", "tests.fuzz.one", name, *flags, str(kept), *folders]
    subprocess.run(command, capture_output=True, check=True)
    for file in sorted(kept.iterdir(), key=lambda file: file.stat().st_size)[MAX_FILES:]:
        file.unlink()
    shutil.rmtree(CORPUS / name, ignore_errors=True)
    shutil.move(kept, CORPUS / name)


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        keep(name)
