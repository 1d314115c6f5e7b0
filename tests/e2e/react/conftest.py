"""Fixtures of the tests with React: the pages, their origin, a server, and the steps of its model."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Server, running
from tests.e2e.react.apps import STEPS_VARIABLE, WORDS
from tests.e2e.react.pages import bundle, prepare_pages
from tests.foreign_clients.pages import served

APP = "tests.e2e.react.apps:app"
PAGES = (
    "main",
    "assistant-ui-page",
    "howto-page",
    "hydrate-page",
    "renders-page",
    "switch-page",
    "token-page",
    "token-state-page",
)

TakeSteps = Callable[[int], None]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the bundled pages."""
    place = prepare_pages(tmp_path_factory.mktemp("react") / "pages")
    bundle(place, *PAGES)
    return place


@pytest.fixture(scope="module")
def origin(pages: Path) -> Iterator[str]:
    with served(pages) as origin:
        yield origin


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the server's log, and let its model read the steps there."""
    folder = tmp_path_factory.mktemp("react_server")
    os.environ[STEPS_VARIABLE] = str(folder / "steps")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, origin: str) -> Iterator[Server]:
    with running(APP, folder, options=("--allow-origin", origin)) as server:
        yield server


@pytest.fixture
def take_steps(folder: Path) -> Iterator[TakeSteps]:
    """Return a function that lets the model write so many words; at the end it may write all."""
    steps = folder / "steps"
    steps.unlink(missing_ok=True)

    def take(count: int) -> None:
        with steps.open("a") as file:
            file.write("x" * count)

    yield take
    take(len(WORDS) + 1)
