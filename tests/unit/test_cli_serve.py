"""`turnlog serve` and `turnlog demo` refuse what cannot work in one clear line; no server is started here."""

import gc
import socket
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from turnlog.cli import load_app, main
from turnlog.server.serve import listen

TOUR = "turnlog_examples.tour:app"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder to be in, and a search path that is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    with warnings.catch_warnings():  # listen leaves its socket open when a port is out of range
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def busy() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def refusal(result: Result) -> str:
    """The one line that says why."""
    assert result.exit_code not in (0, None)
    assert isinstance(result.exception, SystemExit), "a stack trace is no message"
    assert result.stdout == ""
    usage, _, line = result.stderr.rpartition("Error: ")
    assert "Error" not in usage
    assert line.endswith("\n")
    assert "\n" not in line[:-1]
    return line[:-1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("turnlog_examples.tour", "expected MODULE:APP, got 'turnlog_examples.tour'"),
        ("", "expected MODULE:APP, got ''"),
        ("tour.py", "expected MODULE:APP, got 'tour.py'"),
        ("no_such_module:app", "No module named 'no_such_module'"),
        ("turnlog_examples.no_such:app", "No module named 'turnlog_examples.no_such'"),
        ("turnlog_examples.tour:", "expected MODULE:APP, got 'turnlog_examples.tour:'"),
        ("turnlog_examples.tour:ap", "module 'turnlog_examples.tour' has no attribute 'ap'"),
        ("turnlog_examples.tour:app:app", "module 'turnlog_examples.tour' has no attribute 'app:app'"),
        ("turnlog_examples.tour:make_app", "turnlog_examples.tour:make_app is not a turnlog.App"),
        ("turnlog_examples.tour:WEATHER", "turnlog_examples.tour:WEATHER is not a turnlog.App"),
    ],
)
def test_what_is_not_an_application_is_refused(name: str, words: str) -> None:
    line = refusal(run("serve", name, "--port", "0"))
    assert line == f"Invalid value for MODULE:APP: {words}"


def test_no_application_at_all_is_refused() -> None:
    assert "MODULE:APP" in refusal(run("serve"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_an_address_that_others_reach_is_refused(host: str) -> None:
    line = refusal(run("serve", TOUR, "--port", "0", "--host", host))
    assert line == "Invalid value for --host: only a loopback address can be served without sign-in"


def test_a_busy_port_is_refused_by_its_number(busy: int) -> None:
    line = refusal(run("serve", TOUR, "--port", str(busy)))
    assert line == f"cannot listen on 127.0.0.1:{busy}: Address already in use"


def test_a_busy_port_is_refused_by_the_demo_too(busy: int) -> None:
    line = refusal(run("demo", "--no-browser", "--port", str(busy)))
    assert line == f"cannot listen on 127.0.0.1:{busy}: Address already in use"


def test_a_port_that_is_no_number_is_refused() -> None:
    assert "'http' is not a valid integer" in refusal(run("serve", TOUR, "--port", "http"))


def test_a_demo_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert "'tour'" in refusal(run("demo", "no_such"))


def test_nothing_is_left_behind_by_a_refusal(busy: int, tmp_path: Path) -> None:
    refusal(run("serve", TOUR, "--port", str(busy)))
    assert list(tmp_path.iterdir()) == []


def test_an_application_that_is_installed_is_found() -> None:
    assert load_app(TOUR).name == "tour"


def test_an_application_of_the_folder_one_is_in_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_tour.py").write_text("from turnlog_examples.tour import app\n")
    monkeypatch.delitem(sys.modules, "my_own_tour", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert load_app("my_own_tour:app").name == "tour"


@pytest.mark.parametrize("name", [":app", ".tour:app", ":"])
def test_a_name_without_a_module_is_refused(name: str) -> None:
    assert "MODULE:APP" in refusal(run("serve", name, "--port", "0"))


@pytest.mark.parametrize("port", ["-1", "65536", "99999"])
def test_a_port_that_no_machine_has_is_refused(port: str) -> None:
    kind = type(run("serve", TOUR, "--port", port).exception)
    assert kind is SystemExit


def test_a_refused_port_leaves_no_socket_open(busy: int) -> None:
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(OSError, match="in use"):
            listen("127.0.0.1", busy)
        gc.collect()
    assert left == []
