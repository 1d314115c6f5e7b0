"""The benches of this tree and of an earlier commit, in turns: `python -m bench.against COMMIT [BENCH ...]`.

The earlier commit is checked out beside this tree. Every round runs each bench on both, so that noise hits
both alike. A figure is a line "WHAT: RATIO, goal ..." of a bench, mostly against a peer in the same run. The
table shows the median of each figure before and now, and how good it is now as a part of before: 1 is the
same, more is better, also where a figure has a goal "at most". A bench that the earlier commit does not have
is run from this tree on the earlier package.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
ROUNDS = 3
BENCHES = ("fanout", "log", "replay", "sends", "sse", "tags", "turn")
FIGURE = re.compile(r"^(.+): ([\d.]+), goal( at most)?", re.MULTILINE)
LEAST = 0.9

Figures = dict[str, list[float]]


class Figure(NamedTuple):
    what: str
    value: float
    is_cost: bool  # less is better


def figures_of(tree: Path, bench: str) -> list[Figure]:
    """Run a bench on the package of a tree and return its figures."""
    package = bench.replace(".", "/")
    has_own = any((tree / "bench" / name).exists() for name in (f"{package}.py", package))
    folder = tree if has_own else ROOT
    path = os.pathsep.join(map(str, (tree / "src", tree / "examples", folder)))
    ran = subprocess.run(
        [sys.executable, "-m", f"bench.{bench}"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    found = [Figure(what, float(value), bool(most)) for what, value, most in FIGURE.findall(ran.stdout)]
    if not found:
        raise SystemExit(f"bench.{bench} printed no figure in {tree}\n{ran.stdout}{ran.stderr}")
    return found


def compare(before: Path, bench: str) -> bool:
    """Print the figures of one bench; return whether none is below `LEAST` of before."""
    values: dict[Path, Figures] = {before: defaultdict(list), ROOT: defaultdict(list)}
    costs = set()
    for _ in range(ROUNDS):
        for tree, found in values.items():
            for figure in figures_of(tree, bench):
                found[figure.what].append(figure.value)
                if figure.is_cost:
                    costs.add(figure.what)
    good = True
    for what in values[ROOT].keys() & values[before].keys():
        now, earlier = median(values[ROOT][what]), median(values[before][what])
        part = earlier / now if what in costs else now / earlier
        good = good and part >= LEAST
        print(f"| {bench} | {what} | {earlier:.3g} | {now:.3g} | {part:.2f} |", flush=True)
    return good


def main(commit: str, *benches: str) -> int:
    """Print the table; return 1 if a figure is below `LEAST` of before."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "-q", str(tree), commit], check=True)
        try:
            print("| bench | figure | before | now | now / before |\n|---|---|---|---|---|")
            good = [compare(tree, bench) for bench in benches or BENCHES]
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    print(
        f"every figure is at least {LEAST:g} of before"
        if all(good)
        else f"some are below {LEAST:g} of before"
    )
    return int(not all(good))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("usage: python -m bench.against COMMIT [BENCH ...]")
    sys.exit(main(*sys.argv[1:]))
