"""`turnlog link`, `turnlog open`, and Enter in the terminal of a server: new links to sign in."""

import fcntl
import os
import re
import select
import signal
import stat
import subprocess
import sys
import termios
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.limits import HANG_S
from tests.unit.cli.harness import Place, error, said
from turnlog.server.auth.keys import RunningServer, read_server_file, write_server_file

COMMAND = [sys.executable, "-c", "from turnlog.cli import main; main()"]
LINK = re.compile(r"http://127\.0\.0\.1:\d+/sign-in\?code=\S+")
NONE = "no server is running on this log; start one with `turnlog serve`, or choose another log with --log"


class Terminal:
    """A process with a terminal of its own, in whose front it is."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self.folder = folder
        self._master, slave = os.openpty()

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        environment = {name: value for name, value in os.environ.items() if name != "ANTHROPIC_API_KEY"}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env={**environment, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(slave)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, condition: Callable[[str], bool]) -> str:
        """Read until what is shown is as wanted."""
        while not condition(self.shown):
            assert select.select([self._master], [], [], HANG_S)[0], self.shown
            self.shown += os.read(self._master, 65536).decode(errors="replace")
        return self.shown

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        while self.process.poll() is None:
            with suppress(OSError):  # the terminal is gone with its last process
                if select.select([self._master], [], [], 0.1)[0]:
                    self.shown += os.read(self._master, 65536).decode(errors="replace")
        os.close(self._master)


@contextmanager
def terminal(folder: Path, *arguments: str) -> Iterator[Terminal]:
    made = Terminal(arguments, folder)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A server of the tour, on the log `turnlog.db` of its folder, in a terminal."""
    folder = tmp_path_factory.mktemp("server")
    with terminal(folder, "serve", "turnlog_examples.tour:app", "--port", "0", "--journal", "info") as made:
        made.wait_for(lambda shown: "Press Enter" in shown)
        yield made


@pytest.fixture
def served(server: Terminal) -> Place:
    """The log of that server."""
    return Place(server.folder / "turnlog.db")


def status_of(link: str) -> int:
    """What the server answers to who follows a link."""
    try:
        return int(urllib.request.urlopen(link).status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_link_signs_in_at_the_running_server_once(served: Place) -> None:
    link = served.run("link").stdout.rstrip("\n")
    assert LINK.fullmatch(link)
    assert [status_of(link), status_of(link)] == [200, 403]


def test_links_differ_each_time(served: Place) -> None:
    assert served.run("link").stdout != served.run("link").stdout


def test_link_to_a_session_that_is_not_there_is_refused(served: Place) -> None:
    assert error(served.run("link", "sess_none")).startswith("no session sess_none")


def test_open_without_a_screen_prints_the_link(served: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert LINK.fullmatch(served.run("open").stdout.rstrip("\n"))


def test_open_with_a_screen_opens_the_link(served: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", browse)
    assert served.run("open").output == ""
    assert LINK.fullmatch(opened[0])


def test_enter_in_the_terminal_prints_a_new_link_that_signs_in(server: Terminal) -> None:
    before = len(LINK.findall(server.shown))
    server.type("\n")
    links = LINK.findall(
        server.wait_for(lambda shown: len(LINK.findall(shown)) > before and shown[-1] == "\n")
    )
    assert len(set(links)) == len(links)
    assert status_of(links[-1]) == 200


def test_serve_at_a_terminal_prints_its_journal_as_readable_lines(server: Terminal, served: Place) -> None:
    status_of(served.run("link").stdout.rstrip("\n"))
    shown = server.wait_for(lambda shown: "/sign-in status=" in shown)
    assert re.search(r"^\d\d:\d\d:\d\d info .* method=GET route=/sign-in status=", shown, re.MULTILINE)


def test_note_of_where_a_server_is_can_be_read_by_its_owner_alone(served: Place) -> None:
    file = served.path.with_name("turnlog.db.server")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_server_that_stops_removes_its_note_and_link_says_that_none_runs(tmp_path: Path) -> None:
    place = Place(tmp_path / "turnlog.db")
    with terminal(tmp_path, "serve", "turnlog_examples.tour:app", "--port", "0") as made:
        made.wait_for(lambda shown: "Press Enter" in shown)
        assert read_server_file(place.url) is not None
    assert read_server_file(place.url) is None
    assert error(place.run("link")) == NONE


def test_link_after_a_server_was_killed_says_that_none_runs(place: Place) -> None:
    place.session("sess_1", said("one"))
    write_server_file(place.url, RunningServer("http://127.0.0.1:1/", "start"))
    assert error(place.run("link")) == NONE


def test_link_to_a_server_that_others_reach_names_the_token(served: Place, place: Place) -> None:
    running = read_server_file(served.url)
    assert running is not None
    write_server_file(place.url, RunningServer(running.address))
    assert (
        error(place.run("link"))
        == f"{running.address} is reachable from other machines; sign in there with a token"
    )


def test_enter_in_the_terminal_of_the_demo_prints_a_new_link(tmp_path: Path) -> None:
    with terminal(tmp_path, "demo", "--no-browser") as demo:
        demo.wait_for(lambda shown: "Other applications" in shown)
        demo.type("\n")
        demo.wait_for(lambda shown: len(set(LINK.findall(shown))) == 2)
