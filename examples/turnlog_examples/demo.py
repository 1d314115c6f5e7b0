"""The five systems of `turnlog demo`: their applications, and the process that works for one of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnlog import App
from turnlog_examples import assistant, broker, pipeline, weights
from turnlog_examples.demo_office.command import standin_command
from turnlog_examples.office.team import make_app as make_office
from turnlog_examples.weights.__main__ import EXECUTE, started

PACE_S = 0.05  # a word: as fast as one reads


def make_apps(folder: Path | str, pace_s: float = PACE_S, model: str | None = None) -> dict[str, App]:
    """All five, by name. A model of Anthropic's speaks for itself; the process of the office is played."""
    named = f"anthropic:{model}" if model else None
    apps = (
        assistant.make_app(pace_s, model=assistant.searching(model) if model else None),
        pipeline.make_app(pace_s, model=named),
        weights.make_app(pace_s, model=named),
        broker.make_app(pace_s, named),
        make_office(Path(folder) / "office", standin_command(pace_s / 2), demo_mode=True),
    )
    return {app.name: app for app in apps}


@contextmanager
def executing(url: str, folder: Path | str, token: str) -> Iterator[None]:
    """The executor of the weigh-ins, in a process of its own for as long as this lasts."""
    with started(*EXECUTE, "--url", url, "--db", f"{folder}/weights.db", token=token):
        yield
