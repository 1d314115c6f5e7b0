"""Runs `npm test` in `web/` with the Node.js of the machine or of the wheel: `python -m tests.web [SCRIPT]`.

The packages of `web/package-lock.json` are installed once for each version of that file.
"""

import os
import subprocess
import sys
from pathlib import Path

from hatch_build import WEB, install, machine_node, wheel_node


def main(script: str = "test") -> int:
    """Run a script of `web/package.json` and return its exit code."""
    found = machine_node() or wheel_node()
    if found is None:
        print("npm is missing: install Node.js 20 or later, or run `make test`, which does")
        return 1

    install(found, dev=True)
    # npm starts `node` by its name
    path = os.pathsep.join([str(Path(found.node[0]).parent), os.environ.get("PATH", "")])
    command = [*found.npm, "run", "--silent", script]
    return subprocess.run(command, cwd=WEB, env=os.environ | {"PATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
