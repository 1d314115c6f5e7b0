"""`turnlog demo` for the tests: the command itself, on a stage whose words come as fast as they can."""

from pathlib import Path

import turnlog.cli
import turnlog.cli.demo
from turnlog import App
from turnlog_examples import demo
from turnlog_examples.demo import executing

__all__ = ["executing", "make_apps"]


def make_apps(folder: Path | str, agent_url: str, model: str | None = None) -> dict[str, App]:
    return demo.make_apps(folder, agent_url, 0.0, model)


if __name__ == "__main__":
    turnlog.cli.demo.DEMO_MODULE = "tests.e2e.demo_stage"
    turnlog.cli.main()
