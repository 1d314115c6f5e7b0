"""The guides of the systems: what they tell people to type and to watch is there."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.tables import for_each_row
from turnlog import App
from turnlog.cli import load_app
from turnlog.cli.demo import DEMO_NAMES
from turnlog.server.application import create_app
from turnlog_examples.demo import make_apps

PLACES = re.compile(r"`(?:turnlog serve|python -m) ([\w.]+)(:app)?[^`]*`")


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, App]:
    return make_apps(tmp_path_factory.mktemp("guides"))


def test_the_demo_has_the_systems_that_the_command_names(apps: dict[str, App]) -> None:
    assert tuple(apps) == DEMO_NAMES


def test_the_readme_lists_the_systems(apps: dict[str, App]) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    rows = re.findall(r"^\| ([^|`]+) \(`(\w+)`\) \|", readme, re.M)
    assert rows == [(app.title, name) for name, app in apps.items()]


@for_each_row("name", DEMO_NAMES)
def test_a_guide_is_short_and_begins_with_what_the_system_is(name: str, apps: dict[str, App]) -> None:
    guide = apps[name].guide
    assert 10 <= len(guide.splitlines()) <= 25
    assert re.match(r"[A-Z][^\n]+\.\n\n", guide), "its first sentence introduces the system in a list"
    assert len({app.title for app in apps.values()}) == len(apps)


@for_each_row("name", DEMO_NAMES)
def test_what_is_worth_trying_stands_in_the_guide(name: str, apps: dict[str, App]) -> None:
    app = apps[name]
    assert 3 <= len(app.suggestions) <= 5
    if not app.channels:  # the broker's guide is played word for word over the server
        typed = re.findall(r"^- \*\*(.+?)\*\*", app.guide, re.M)
        assert typed[: len(app.suggestions)] == list(app.suggestions)


@for_each_row("name", DEMO_NAMES)
def test_the_events_of_a_guide_are_those_of_the_system(name: str, apps: dict[str, App]) -> None:
    named = set(re.findall(r"`([a-z]+\.[a-z_]+)`", apps[name].guide))
    assert len(named) >= 3
    assert named <= set(apps[name].catalog.types)


@pytest.mark.parametrize("name", DEMO_NAMES)
def test_the_commands_and_routes_of_a_guide_are_there(
    name: str, apps: dict[str, App], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    places = PLACES.findall(apps[name].guide)
    assert places, "a guide says how to keep the log"
    for module, app in places:
        assert not app or load_app(module + app).name == name
        assert app or find_spec(f"{module}.__main__") is not None
    paths = {getattr(route, "path", "") for route in create_app(apps[name], "memory:").routes}
    assert set(re.findall(r"(/api/\w+)", apps[name].guide)) <= paths
