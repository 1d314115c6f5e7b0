"""Every bench, one after the other: `python -m bench` or `make bench`. The exit code is the missed goals."""

import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import signature

import bench


def found(name: str) -> Callable[[], int] | None:
    """The `main` of a bench that needs nothing; one that takes arguments is run by hand."""
    main: Callable[[], int] | None = getattr(import_module(f"bench.{name}"), "main", None)
    return None if main is None or signature(main).parameters else main


def main() -> int:
    """Run them; how many goals were missed."""
    missed = 0
    names = sorted(module.name for module in pkgutil.iter_modules(bench.__path__))
    for name in names:
        if name != "__main__" and (run := found(name)):
            print(f"\n# bench.{name}\n", flush=True)
            missed += run()
    print(f"\n{missed} goals missed" if missed else "\nevery goal met")
    return missed


if __name__ == "__main__":
    sys.exit(main())
