"""From a fresh clone to the first answer in a browser: `python -m bench.first_answer [SCREENSHOT]`.

Clones the committed state into an empty folder, runs `make demo` there with a new environment, opens the
page in Chromium by the link that signs in, and tries the first thing worth trying. Prints the seconds of
each part.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import expect

from tests.e2e.browser import browsing
from tests.tools import TOOLS

ROOT = Path(__file__).parent.parent
TRIED = "Can we fly from Göreme?"


def wait_for_link(process: subprocess.Popen[str]) -> str:
    """The link that `make demo` prints; what it says before is shown."""
    assert process.stdout is not None
    for line in process.stdout:
        print("  " + line.rstrip()[:150])
        if "/sign-in?code=" in line:
            return line.split()[-1]
    raise SystemExit("make demo ended without a link")


def main(screenshot: str | None = None) -> None:
    """Measure once."""
    chromium = TOOLS["chromium"].find()
    if chromium is None:
        raise SystemExit("this needs Chromium")
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        subprocess.run(["git", "clone", "-q", str(ROOT), f"{folder}/turnlog"], check=True)
        command = ["make", "demo", "ARGS=--no-browser"]
        with subprocess.Popen(command, cwd=f"{folder}/turnlog", stdout=subprocess.PIPE, text=True) as process:
            link = wait_for_link(process)
            served = time.monotonic()
            try:
                with browsing(chromium) as browser:
                    page = browser.new_page()
                    page.goto(link)
                    page.get_by_role("button", name=TRIED).click()
                    expect(page.get_by_text("Before a flight").first).to_be_visible()
                    answered = time.monotonic()
                    page.get_by_role("button", name="Yes").click(timeout=30_000)
                    expect(page.get_by_text("The plan is written").first).to_be_visible(timeout=30_000)
                    if screenshot:
                        page.screenshot(path=screenshot)
            finally:
                subprocess.run(["pkill", "-TERM", "-P", str(process.pid)], check=False)
    print(f"clone and make demo {served - began:.1f} s, first words {answered - served:.1f} s later")


if __name__ == "__main__":
    main(*sys.argv[1:2])
