"""Which packages of `web/package-lock.json` a build and the tests install, and when they install none."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NPM = """
import json, pathlib, sys
pathlib.Path("node_modules").mkdir(exist_ok=True)
with open("calls.jsonl", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
"""
INSTALL = """
import sys
import hatch_build
node = hatch_build.Node((sys.executable,), (sys.executable, "npm.py"))
hatch_build.install(node, dev={dev})
"""


class Checkout:
    """A tree with a lock, and an npm that writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.web = folder / "web"
        self.web.mkdir()
        shutil.copy(ROOT / "hatch_build.py", folder)
        (self.web / "npm.py").write_text(NPM)
        self.lock("one")

    def lock(self, text: str) -> None:
        (self.web / "package-lock.json").write_text(text)

    def install(self, dev: str) -> None:
        subprocess.run([sys.executable, "-c", INSTALL.format(dev=dev)], cwd=self.folder, check=True)

    @property
    def omits(self) -> list[bool]:
        """For every run of npm, whether it left out the packages for development."""
        calls = self.web / "calls.jsonl"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return ["--omit=dev" in json.loads(line) for line in lines]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_install_for_a_build_omits_packages_for_development(checkout: Checkout) -> None:
    checkout.install("False")
    assert checkout.omits == [True]


@pytest.mark.parametrize("dev", ["True", "False"])
def test_install_again_runs_npm_once(checkout: Checkout, dev: str) -> None:
    checkout.install(dev)
    checkout.install(dev)
    assert len(checkout.omits) == 1


def test_install_for_tests_after_a_build_adds_the_rest(checkout: Checkout) -> None:
    checkout.install("False")
    checkout.install("True")
    checkout.install("False")
    assert checkout.omits == [True, False]


def test_install_with_a_new_lock_runs_npm_again(checkout: Checkout) -> None:
    checkout.install("True")
    checkout.lock("two")
    checkout.install("True")
    assert checkout.omits == [False, False]


def test_build_with_a_new_lock_keeps_packages_for_development(checkout: Checkout) -> None:
    checkout.install("True")
    checkout.lock("two")
    checkout.install("hatch_build.has_dev_packages()")
    assert checkout.omits == [False, False]
