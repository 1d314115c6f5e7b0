"""Fuzz one target with Atheris: `python -m tests.fuzz.one NAME FOLDER [libFuzzer flags]`.

The folder receives every input that reaches new code. An input that breaks a law ends the process with
exit code 77 and is written to `crash-...` in the folder that `-artifact_prefix=` names.
"""

import sys
from importlib import import_module
from typing import Any

from tests.fuzz.targets import NAMES


def main() -> None:
    name, *arguments = sys.argv[1:]
    if name not in NAMES:
        sys.exit(f"expected a target among {', '.join(NAMES)}, got {name}")
    atheris: Any = import_module("atheris")  # not on every platform, and without types
    # Only modules that are imported inside are instrumented: no module of Turnlog is imported before.
    with atheris.instrument_imports(include=["turnlog"]):
        from tests.fuzz.targets import load_target

        target = load_target(name)
    # libFuzzer starts itself again for `-merge=1`, with the first argument as the program.
    atheris.Setup([f"{sys.executable} -m tests.fuzz.one {name}", *arguments], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
