"""The example `office` without its process: the floor, what Julian is told, which program plays him."""

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import turnlog_examples.office
from tests.support.written_logs import vector_log
from turnlog import App
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.cli.log_access import run_command
from turnlog.errors import CallerError
from turnlog.events import CORE, Catalog, Scope
from turnlog.log import open_log
from turnlog.state.fold import fold
from turnlog.state.snapshot import dump, load
from turnlog.team.events import TEAM
from turnlog.team.markers import MARKERS
from turnlog_examples.demo_office.command import COMMAND, MODEL, standin_command
from turnlog_examples.demo_office.script import OPENINGS
from turnlog_examples.office.__main__ import main
from turnlog_examples.office.floor import REDUCERS, SHOWN, Floor
from turnlog_examples.office.instructions import INSTRUCTIONS, SCREEN
from turnlog_examples.office.team import TOLD, installed_cli, julians_command, make_app

CATALOG = Catalog(CORE, TEAM)


def event(type: str, **payload: Any) -> dict[str, Any]:
    return {"type": type, "payload": payload}


def joined(name: str, seat: int) -> dict[str, Any]:
    return event("roster.join", name=name, seat=seat, soul=f"I am {name}.")


def written(path: str, is_new: bool, size_bytes: int = 10, **more: Any) -> dict[str, Any]:
    return event(
        "artifact.write", filename=path, path=f"memory/{path}", is_new=is_new, size_bytes=size_bytes, **more
    )


BEGIN = event("process.start", process="model", pid=7)
END = event("process.end", process="model", reason="process_crash", pid=7)
SUMMON = event("ui.command", command={"kind": "summon"})


def floor_after(*events: dict[str, Any]) -> Floor:
    floor = fold(REDUCERS, vector_log(list(events)), Floor())
    assert isinstance(floor, Floor)
    return floor


def states(floor: Floor) -> dict[int, tuple[str, str]]:
    return {one.seat: (one.name, one.state) for one in floor.grid if one}


class TestFloor:
    def test_julian_is_there_while_his_process_runs(self) -> None:
        server = event("process.start", process="server", pid=1)
        assert states(floor_after(server)) == {4: ("Julian", "sleeping")}
        assert states(floor_after(server, BEGIN)) == {4: ("Julian", "alive")}
        assert states(floor_after(BEGIN, END)) == {4: ("Julian", "sleeping")}
        assert floor_after(BEGIN, END).grid[4] is not None
        assert floor_after(BEGIN, END, BEGIN).grid[4].born == floor_after(BEGIN).grid[4].born  # type: ignore[union-attr]

    def test_the_team_is_alive_until_the_process_ends(self) -> None:
        team = [BEGIN, SUMMON, joined("Lyra", 0), joined("Lyra", 8)]
        assert states(floor_after(*team)) == {
            0: ("Lyra", "alive"),
            4: ("Julian", "alive"),
            8: ("Lyra", "alive"),
        }
        assert floor_after(*team).hatching is not None
        over = floor_after(*team, END)
        assert {state for _, state in states(over).values()} == {"sleeping"}
        assert over.hatching is None

    def test_a_status_does_not_put_julian_to_sleep_and_nobody_takes_his_seat(self) -> None:
        floor = floor_after(BEGIN, joined("Lyra", 0), joined("Mallory", 4), event("roster.status", agents=[]))
        assert states(floor) == {0: ("Lyra", "sleeping"), 4: ("Julian", "alive")}

    def test_artifacts_are_counted_until_they_are_new_again(self) -> None:
        first = written("a.html", True, meta={"description": "A", "category": "knowledge"})
        [artifact] = floor_after(first, written("a.html", False, 20)).artifacts.values()
        assert (artifact.size_bytes, artifact.writes, artifact.description) == (20, 2, None)
        [artifact] = floor_after(first, written("a.html", True, 5)).artifacts.values()
        assert (artifact.size_bytes, artifact.writes) == (5, 1)
        assert floor_after(first).artifacts["memory/a.html"].category == "knowledge"
        assert floor_after(written("b.html", False)).artifacts["memory/b.html"].writes == 1

    def test_the_screen_and_the_work_show_the_last_ones(self) -> None:
        faces = [event("screen.command", command=f"FACE f{n}", expression=f"f{n}") for n in range(SHOWN + 5)]
        offers = [event("roster.offer", agent="Lyra", jobs=[f"job {n}"]) for n in range(SHOWN + 5)]
        night = event("screen.command", command="BG night")
        helped = event("job.suggest", suggestions={"name": "Gardener"})
        floor = floor_after(*faces, night, *offers, helped)
        assert (len(floor.screen), floor.screen[-1], floor.face) == (SHOWN, "BG night", f"f{SHOWN + 4}")
        assert (len(floor.offers), floor.offers[-1].jobs) == (SHOWN, (f"job {SHOWN + 4}",))
        assert floor.form == {"name": "Gardener"}

    def test_it_comes_back_from_its_bytes_and_reducers_change_nothing(self) -> None:
        team = [BEGIN, SUMMON, joined("Lyra", 0), written("a.html", True), END]
        for cut in range(len(team)):
            before = floor_after(*team[:cut])
            kept = dump(before)
            assert load(Floor, kept) == before
            fold(REDUCERS, vector_log(team[cut:]), before)
            assert dump(before) == kept


class TestInstructions:
    def test_they_contain_every_marker_and_every_word_of_the_office(self) -> None:
        for word in (*MARKERS, *OPENINGS, SCREEN, "memory/", "artifact-description"):
            assert word in INSTRUCTIONS


class TestCommand:
    def test_without_the_real_one_it_is_the_stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("turnlog_examples.office.team.installed_cli", lambda: None)
        assert julians_command()[: len(COMMAND)] == COMMAND

    def test_the_real_one_is_told_who_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("turnlog_examples.office.team.installed_cli", lambda: "/opt/claude")
        assert julians_command() == ("/opt/claude", *TOLD)
        assert INSTRUCTIONS in TOLD

    def test_it_is_found_in_the_package_and_else_on_the_path(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        program = tmp_path / "bin" / "claude"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        monkeypatch.delitem(sys.modules, "claude_agent_sdk", raising=False)  # other tests may have loaded it
        package = tmp_path / "claude_agent_sdk"
        package.mkdir()
        (package / "__init__.py").write_text("")
        assert installed_cli() == str(program), "a package without its program is none"
        bundled = package / "_bundled" / "claude"
        bundled.parent.mkdir()
        bundled.write_text("")
        assert installed_cli() == str(bundled)

    def test_where_there_is_none_there_is_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        assert installed_cli() is None


class TestApp:
    def test_it_has_a_folder_with_a_memory(self, tmp_path: Path) -> None:
        app = make_app(tmp_path / "deep" / "office", standin_command())
        assert isinstance(app.runtime, ClaudeCode)
        assert (app.runtime.name, app.runtime.model, app.runtime.screen_url) == (
            "Julian",
            MODEL,
            SCREEN,
        )
        assert app.runtime.artifact_dir == str(tmp_path / "deep" / "office" / "memory")
        assert (tmp_path / "deep" / "office" / "memory").is_dir()

    @pytest.mark.parametrize("forced", [True, False])
    def test_it_is_made_when_it_is_asked_for(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, forced: bool
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("turnlog_examples.office.team.installed_cli", lambda: "/opt/claude")
        if forced:
            monkeypatch.setenv("FORCE_DEMO_MODE", "1")
        else:
            monkeypatch.delenv("FORCE_DEMO_MODE", raising=False)
        assert list(tmp_path.iterdir()) == []
        app = turnlog_examples.office.app
        assert isinstance(app, App)
        assert isinstance(app.runtime, ClaudeCode)
        assert (app.runtime.command[0] == "/opt/claude", app.runtime.demo_mode) == (
            not forced,
            forced,
        )
        assert (tmp_path / "office" / "memory").is_dir()

    def test_there_is_nothing_else(self) -> None:
        with pytest.raises(AttributeError, match="has no attribute nothing"):
            turnlog_examples.office.nothing  # noqa: B018


@pytest.fixture
def log_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/log.db"

    async def fill() -> None:
        log = await open_log(url)
        for name, app in (("sess_office", "office"), ("sess_other", "other")):
            await log.create(app, name)
        events = [
            BEGIN,
            SUMMON,
            joined("[red]Lyra", 0),
            written("a.html", True, meta={"description": "A\x1b[2J"}),
        ]
        origins: Any = {"ui.command": "ui"}
        made = [
            CATALOG.build_event(
                one["type"],
                one["payload"],
                id=f"evt_{number}",
                origin=origins.get(one["type"], "system"),
                scope=Scope(),
            )
            for number, one in enumerate(events)
        ]
        await log.append("sess_office", made)
        await log.close()

    run_command(fill())
    return url


class TestView:
    def test_it_prints_the_grid_and_the_artifacts(self, log_url: str) -> None:
        shown = CliRunner().invoke(main, ["sess_office", "--log", log_url])
        assert shown.exit_code == 0, shown.output
        assert "Julian" in shown.output
        assert "[red]Lyra" in shown.output
        assert "\x1b" not in shown.output
        assert "Somebody is expected since" in shown.output
        assert "memory/a.html  10 bytes  A" in shown.output

    @pytest.mark.parametrize("session", ["sess_other", "sess_none"])
    def test_a_session_of_another_application_is_none(self, log_url: str, session: str) -> None:
        shown = CliRunner().invoke(main, [session, "--log", log_url])
        assert shown.exit_code == 1
        assert session in shown.output


def test_an_app_that_is_no_agent_says_so(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="Julian is a process"):
        _ = make_app(tmp_path, standin_command()).agent
