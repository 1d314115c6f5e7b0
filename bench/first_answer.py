"""From a fresh clone to the first answer in a browser: `python -m bench.first_answer [SCREENSHOT]`.

Clones the committed state into an empty folder, runs `make demo` there with a new environment, opens the
page in Chromium, sends a message and waits for the agent's first words. Prints the seconds of each part.
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


def wait_for_address(process: subprocess.Popen[str]) -> str:
    """The address `make demo` prints; what it says before is shown."""
    assert process.stdout is not None
    for line in process.stdout:
        print("  " + line.rstrip()[:150])
        if "http://127.0.0.1:" in line:
            return line.split()[3]
    raise SystemExit("make demo ended without an address")


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
            address = wait_for_address(process)
            served = time.monotonic()
            try:
                with browsing(chromium) as browser:
                    page = browser.new_page()
                    page.goto(address)
                    page.fill("#text", "Oslo")
                    page.click("button[type=submit]")
                    expect(page.locator("#messages > .agent").first).to_contain_text("Let me see")
                    answered = time.monotonic()
                    page.get_by_role("button", name="Yes").click(timeout=30_000)
                    expect(page.locator("#state")).to_contain_text("Oslo", timeout=30_000)
                    if screenshot:
                        page.screenshot(path=screenshot)
            finally:
                subprocess.run(["pkill", "-TERM", "-P", str(process.pid)], check=False)
    print(f"clone and make demo {served - began:.1f} s, first words {answered - served:.1f} s later")


if __name__ == "__main__":
    main(*sys.argv[1:2])
