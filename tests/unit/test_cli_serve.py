"""`turnlog serve` refuses what cannot work in one clear line; no server is started here."""

import gc
import importlib
import socket
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import turnlog_examples.tour
from turnlog.cli import load_app, main
from turnlog.cli.serve import (
    LOOPBACK,
    PORT_IN_USE_HINT,
    TOKEN_VARIABLE,
    check_host_names,
    host_header_names,
    url_host,
)
from turnlog.server.auth import host_check
from turnlog.server.auth.credentials import hash_token
from turnlog.server.auth.keys import read_token_entries
from turnlog.server.uvicorn_server import listen

TOUR = "turnlog_examples.tour:app"
TOUR_FILE = turnlog_examples.tour.__file__


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder to be in, and a search path that is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


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
        ("turnlog_examples.tour:ap", f"module 'turnlog_examples.tour' ({TOUR_FILE}) has no attribute 'ap'"),
        (
            "turnlog_examples.tour:app:app",
            f"module 'turnlog_examples.tour' ({TOUR_FILE}) has no attribute 'app:app'",
        ),
        ("turnlog_examples.tour:make_app", "turnlog_examples.tour:make_app is not a turnlog.App"),
        ("turnlog_examples.tour:WEATHER", "turnlog_examples.tour:WEATHER is not a turnlog.App"),
    ],
)
def test_what_is_not_an_application_is_refused(name: str, words: str) -> None:
    line = refusal(run("serve", name, "--port", "0"))
    assert line == f"Invalid value for MODULE:APP: {words}"


def test_no_application_at_all_is_refused() -> None:
    assert "MODULE:APP" in refusal(run("serve"))


@pytest.mark.parametrize("token", [None, ""])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", "127.0.0.1.example.org", ""])
def test_an_address_that_others_reach_is_refused_unless_it_knows_who_may_come_in(
    host: str, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if token is not None:
        monkeypatch.setenv(TOKEN_VARIABLE, token)
    line = refusal(run("serve", TOUR, "--port", "0", "--host", host))
    assert line == (
        "Invalid value for --host: other machines can reach this address; "
        "configure access with --tokens, --jwt or TURNLOG_TOKEN"
    )


def test_a_busy_port_is_refused_by_its_number(busy: int) -> None:
    line = refusal(run("serve", TOUR, "--port", str(busy)))
    assert line == f"cannot listen on 127.0.0.1:{busy}: Address already in use{PORT_IN_USE_HINT}"


def test_a_port_that_is_no_number_is_refused() -> None:
    assert "'http' is not a valid integer" in refusal(run("serve", TOUR, "--port", "http"))


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import unheard_of\n", "ModuleNotFoundError, No module named 'unheard_of' ({file}, line 1)"),
        ("\n1 / 0\n", "ZeroDivisionError, division by zero ({file}, line 2)"),
        ("app = (\n", "SyntaxError, '(' was never closed (my_broken_tour.py, line 1)"),
        (
            "import turnlog\nturnlog.App('x')\n",
            "TypeError, App.__init__() missing 1 required positional argument: 'agent' ({file}, line 2)",
        ),
    ],
)
def test_an_application_that_fails_is_told_by_where_it_does(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my_broken_tour.py"
    file.write_text(text)
    monkeypatch.delitem(sys.modules, "my_broken_tour", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    line = refusal(run("serve", "my_broken_tour:app", "--port", "0"))
    wanted = words.format(file=file)
    assert line == f"Invalid value for MODULE:APP: cannot import my_broken_tour: {wanted}"


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("nonsense", "'nonsense'"),
        ("sqlite://turnlog.db", "'sqlite://turnlog.db'"),
        ("ftp://ada:secret@x", "'ftp:…'"),  # without what may be a password
    ],
)
def test_server_that_cannot_open_its_log_says_which_and_no_address(url: str, named: str) -> None:
    assert refusal(run("serve", TOUR, "--port", "0", "--log", url)).endswith(f"got {named}")


@pytest.mark.parametrize("host", ["", "https://log.example.org", "log.example.org:80", "a b", "::1"])
def test_a_name_that_no_request_has_is_refused(host: str) -> None:
    line = refusal(run("serve", TOUR, "--port", "0", "--allow-host", host))
    wanted = "expected a name such as log.example.org, without a port"
    assert line == f"Invalid value for '--allow-host': {wanted}, got {host!r}"


@pytest.mark.parametrize(
    ("host", "name"), [("Log.Example.ORG", "log.example.org"), ("10.0.0.7", "10.0.0.7"), ("[::1]", "[::1]")]
)
def test_a_name_is_known_as_browsers_say_it(host: str, name: str) -> None:
    assert check_host_names((host,)) == (name,)


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
        with pytest.raises(OverflowError):
            listen("127.0.0.1", 1 << 16)
        gc.collect()
    assert left == []


def test_a_token_that_can_be_guessed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "x" * 23)
    assert refusal(run("serve", TOUR, "--port", "0")) == "expected a TURNLOG_TOKEN of at least 24 characters"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "cannot read who.json: No such file or directory"),
        ("", "who.json is not a token file: Input data was truncated"),
        ('{"ada": {"sha256": "a"}}', "who.json: expected the SHA-256 of ada's token as 64 hex digits"),
    ],
)
def test_a_file_of_tokens_that_is_none_is_refused(said: str | None, words: str, tmp_path: Path) -> None:
    if said is not None:
        (tmp_path / "who.json").write_text(said)
    assert refusal(run("serve", TOUR, "--port", "0", "--tokens", "who.json")) == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "cannot read who.toml: No such file or directory"),
        ("", "who.toml is not a JWT configuration: Object missing required field `algorithms`"),
        (
            'key_file = "key"\nalgorithms = ["RS256"]\naudience = "a"\nissuer = "b"\n',
            "who.toml: expected a public RSA key in PEM",
        ),
    ],
)
def test_a_file_about_jwts_that_is_none_is_refused(said: str | None, words: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    if said is not None:
        (tmp_path / "who.toml").write_text(said)
    assert refusal(run("serve", TOUR, "--port", "0", "--jwt", "who.toml")) == words


def test_a_key_that_others_can_read_is_refused_and_the_port_is_free_again(tmp_path: Path) -> None:
    (tmp_path / "turnlog.db.key").write_bytes(b"k" * 32)
    (tmp_path / "turnlog.db.key").chmod(0o644)
    line = refusal(run("serve", TOUR, "--port", "0"))
    assert line == "turnlog.db.key can be read by others: make it private (chmod 600 turnlog.db.key)"


def test_two_applications_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "another_tour.py").write_text(
        "from turnlog_examples.tour import make_app\napp = make_app()\n"
    )
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    line = refusal(run("serve", TOUR, "another_tour:app", "--port", "0"))
    assert line == "expected applications of different names, got tour twice"


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("0.0.0.0", ()),
        ("::", ()),
        ("192.168.1.7", ("192.168.1.7",)),
        ("fe80::1", ("[fe80::1]",)),
        ("a.b", ("a.b",)),
    ],
)
def test_a_server_answers_for_the_address_it_listens_on(host: str, names: tuple[str, ...]) -> None:
    assert host_header_names(host) == names
    assert all(host_check.strip_port(f"{name}:8765") == name for name in names)


def test_loopback_is_the_same_for_the_command_and_the_guard() -> None:
    assert {url_host(host) for host in LOOPBACK} == set(host_check.LOOPBACK)


class TestToken:
    def test_a_token_is_shown_with_what_the_server_reads(self, tmp_path: Path) -> None:
        result = run("token", "ada", "--role", "operator", "--role", "executor")
        assert result.exit_code == 0
        first, token, second, line = result.output.splitlines()
        assert first == "The token of ada. Copy it now: it is not stored."
        assert second == "Add this line, which has only its hash, to the file of `turnlog serve --tokens`:"
        (tmp_path / "tokens.json").write_text(line)
        [(digest, principal)] = read_token_entries(tmp_path / "tokens.json").items()
        assert (digest, principal.name) == (hash_token(token.strip()), "ada")
        assert principal.server_roles == {"operator", "executor"}
        assert token.strip() not in line

    def test_every_token_is_another(self) -> None:
        tokens = {run("token", "ada").output.splitlines()[1] for _ in range(3)}
        assert len(tokens) == 3
        assert all(len(token.strip()) >= 43 for token in tokens)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (
                ("ada", "--role", "owner"),
                "expected a server role, executor, operator or source, got 'owner'",
            ),
            (("",), "expected a name of at most 128 bytes without control characters, got ''"),
            (("ü" * 65,), "expected a name of at most 128 bytes without control characters, got "),
        ],
    )
    def test_what_cannot_be_is_said_and_no_token_is_shown(
        self, arguments: tuple[str, ...], words: str
    ) -> None:
        assert refusal(run("token", *arguments)).startswith(words)


@pytest.mark.parametrize("more", [("--host", "0.0.0.0"), ("--allow-host", "example.org")])
def test_serve_debug_where_others_can_reach_it_is_refused(
    more: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "x" * 32)
    result = run("serve", TOUR, "--debug", *more)
    assert result.exit_code == 2
    assert "tool errors may contain secrets" in " ".join(result.output.split())
