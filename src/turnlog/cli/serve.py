"""Commands that run an application: `serve`, `token`. They import the server when they run."""

import errno
import importlib
import os
import re
import secrets
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

import turnlog
from turnlog.cli.enter import call_on_enter
from turnlog.cli.log_access import LOG_OPTION
from turnlog.cli.terminal import escape_controls
from turnlog.errors import TurnlogError

if TYPE_CHECKING:
    from turnlog.app import Principal
    from turnlog.server.auth.credentials import BuiltinAuth, TokenVerifier

PORT_RANGE = click.IntRange(0, 65535)
LOOPBACK = ("127.0.0.1", "::1", "localhost")
TOKEN_VARIABLE = "TURNLOG_TOKEN"
SCREEN_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
PORT_IN_USE_HINT = "; choose another port with --port, or a free one with --port 0"


class TokenFiles(NamedTuple):
    """Files that say whose tokens are accepted."""

    token_hashes: Path | None = None
    jwt_config: Path | None = None


@click.command(
    short_help="Serve an application, such as app:app.",
    epilog="Example: turnlog serve app:app --log sqlite:///shop.db --port 0",
)
@click.argument("apps", metavar="MODULE:APP...", nargs=-1, required=True)
@click.option("--log", "log_url", **LOG_OPTION)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=PORT_RANGE, default=8765, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--tokens", type=click.Path(path_type=Path), help="A file of tokens, see `turnlog token`.")
@click.option(
    "--jwt", type=click.Path(path_type=Path), help="A file that says which JSON Web Tokens to accept."
)
@click.option(
    "--allow-host",
    multiple=True,
    callback=lambda context, option, value: check_host_names(value),
    help="A name this server answers for, if not loopback.",
)
@click.option(
    "--journal",
    type=click.Choice(["info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="From which level on the server writes to stderr: lines of JSON, or text if that is a terminal; "
    "info has every request.",
)
@click.option(
    "--debug",
    is_flag=True,
    help="Show every member what a tool raised, instead of only that it failed; for this machine only.",
)
def serve_command(  # noqa: PLR0913  the options of the command
    apps: tuple[str, ...],
    log_url: str,
    host: str,
    port: int,
    tokens: Path | None,
    jwt: Path | None,
    allow_host: tuple[str, ...],
    journal: str,
    debug: bool,
) -> None:
    """Run `turnlog serve app:app` to serve the application `app` of the file app.py: MODULE:APP, or several.

    The link that is printed signs you in, once; Enter, or `turnlog link` elsewhere, prints a new one.
    Programs send the token that is in the environment variable TURNLOG_TOKEN.

    The server listens on this machine only. Where others can reach it (--host), it has to know who may come
    in: by --tokens, --jwt or TURNLOG_TOKEN.

    The file of --jwt (TOML or JSON) has key_file or jwks_url, algorithms, audience and issuer. Optional are
    name (what the names of its principals begin with), roles_claim and roles, a map from the provider's roles
    to operator, executor or source.
    """
    if host not in LOOPBACK and not (tokens or jwt or os.environ.get(TOKEN_VARIABLE)):
        problem = (
            f"others can reach this address: say who may come in, with --tokens, --jwt or {TOKEN_VARIABLE}"
        )
        raise click.BadParameter(problem, param_hint="--host")
    if debug and (host not in LOOPBACK or allow_host):
        problem = (
            "what tools raise may hold secrets: it is shown on a loopback address only, without --allow-host"
        )
        raise click.BadParameter(problem, param_hint="--debug")
    files = TokenFiles(tokens, jwt)
    run_server(apps, log_url, host, port, tokens=files, hosts=allow_host, journal=journal, debug=debug)


@click.command(
    short_help="Make a token for a person or a program.", epilog="Example: turnlog token ada --role operator"
)
@click.argument("name")
@click.option("--role", "roles", multiple=True, help="A server role: operator, executor or source.")
def token(name: str, roles: tuple[str, ...]) -> None:
    """Make a token for NAME, a person or a program: the token itself, and what `serve --tokens` reads."""
    from turnlog.server.auth.credentials import hash_token
    from turnlog.server.auth.keys import TokenEntry, encode_tokens

    made = secrets.token_urlsafe(32)
    line = encode_tokens({name: TokenEntry(hash_token(made), roles)})
    click.echo(f"The token of {name}. It is kept nowhere: copy it now.\n  {made}")
    click.echo(f"For the file of `turnlog serve --tokens`, which knows the token by its hash:\n  {line}")


COMMANDS = (serve_command, token)


def run_server(
    apps: Sequence[str],
    log_url: str,
    host: str,
    port: int,
    *,
    tokens: TokenFiles = TokenFiles(),  # noqa: B008
    hosts: Sequence[str] = (),
    journal: str = "warning",
    debug: bool = False,
) -> None:
    """Listen, open the log, print the address, serve until stopped."""
    from turnlog.agents.runtime.executor import explain_tool_error, mask_tool_error
    from turnlog.cli.terminal_log import make_terminal_formatter
    from turnlog.server import create_app
    from turnlog.server.auth import host_check
    from turnlog.server.auth.credentials import BuiltinAuth
    from turnlog.server.auth.keys import (
        RunningServer,
        delete_server_file,
        load_or_create_key,
        log_sibling_path,
        write_server_file,
    )
    from turnlog.server.auth.revocation import RevokedCookies
    from turnlog.server.auth.token_file import TokenFile
    from turnlog.server.log_format import configure_logging
    from turnlog.server.uvicorn_server import serve as run

    configure_logging(journal, make_terminal_formatter())
    loaded = [load_app(app) for app in apps]
    known, verify = load_tokens(tokens.token_hashes), make_token_verifier(tokens.jwt_config)
    with open_listener(host, port) as (listener, address), ExitStack() as ending:
        revoked = RevokedCookies(log_sibling_path(log_url, ".revoked"), time.time())
        auth = BuiltinAuth(load_or_create_key(log_url), known, verify, revoked_cookies=revoked)
        names = (*host_check.LOOPBACK, *host_header_names(host), *hosts)
        describe = explain_tool_error if debug else mask_tool_error
        application = create_app(loaded, log_url, auth=auth, hosts=names, describe=describe)

        def begun() -> None:
            write_server_file(log_url, RunningServer(address, auth.start_id if host in LOOPBACK else ""))
            ending.callback(delete_server_file, log_url)
            print_address(address)
            if host in LOOPBACK:
                print_sign_in_links(address, auth)
            elif not hosts and not host_header_names(host):
                click.echo(
                    "It answers for localhost only. Say under which names others reach it: --allow-host"
                )
            sys.stdout.flush()

        file = tokens.token_hashes
        watched = (
            TokenFile(file, lambda: load_tokens(file) or {}, application.state.set_tokens) if file else None
        )
        run(application, listener, begun, watched)


@contextmanager
def open_listener(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens, and the address it is at."""
    from turnlog.server.uvicorn_server import listen

    try:
        listener = listen(host, port)
    except OSError as error:
        advice = PORT_IN_USE_HINT if error.errno == errno.EADDRINUSE else ""
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}{advice}") from None
    with listener:
        yield listener, f"http://{url_host(host)}:{listener.getsockname()[1]}/"


def build_sign_in_link(address: str, auth: "BuiltinAuth", session_id: str = "") -> str:
    """A link that signs in who started the server, once, and leads to a session."""
    return f"{address}sign-in?code={auth.make_sign_in_code(time.time(), session_id)}"


def print_address(address: str) -> None:
    click.echo(f"Turnlog is at {address}  (stop with Ctrl+C)")


def print_sign_in_link(link: str) -> None:
    click.echo(f"Open this link to sign in, it works once: {link}")


def print_sign_in_links(address: str, auth: "BuiltinAuth", session_id: str = "") -> str:
    """Print a link to sign in, and a new one whenever a person presses Enter; return the first."""

    def say_new_link() -> None:
        print_sign_in_link(build_sign_in_link(address, auth, session_id))
        sys.stdout.flush()

    link = build_sign_in_link(address, auth, session_id)
    print_sign_in_link(link)
    if call_on_enter(say_new_link):
        click.echo("Press Enter for a new link.")
    return link


def has_screen() -> bool:
    """Whether a browser would have a window of its own; in a terminal it would hide the server."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in SCREEN_VARIABLES)


def host_header_names(host: str) -> tuple[str, ...]:
    """What requests to an address name it; nothing for one that stands for all of a machine's addresses."""
    return () if host in ("0.0.0.0", "::") else (url_host(host),)


def check_host_names(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what no request can name as its host."""
    for host in hosts:
        if not re.fullmatch(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]", host):
            raise click.BadParameter(f"expected a name such as log.example.org, without a port, got {host!r}")
    return tuple(host.lower() for host in hosts)  # as browsers say it


def url_host(host: str) -> str:
    """An address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def load_tokens(file: Path | None) -> "dict[str, Principal] | None":
    """Whose tokens are accepted: those of a file and the one of the environment; None without both."""
    from turnlog.app import LOCAL
    from turnlog.server.auth.credentials import hash_token
    from turnlog.server.auth.keys import MIN_TOKEN_CHARS, read_token_entries

    known = read_token_entries(file) if file else {}
    if given := os.environ.get(TOKEN_VARIABLE):
        if len(given) < MIN_TOKEN_CHARS:
            raise click.ClickException(
                f"expected a {TOKEN_VARIABLE} of at least {MIN_TOKEN_CHARS} characters"
            )
        known[hash_token(given)] = LOCAL
    return known if file or given else None


def make_token_verifier(file: Path | None) -> "TokenVerifier":
    """How other tokens are checked."""
    from turnlog.server.auth.credentials import reject_token
    from turnlog.server.auth.jwt import load_jwt_tokens

    return load_jwt_tokens(file) if file else reject_token


def load_app(name: str) -> "turnlog.App":
    """The application that `module:name` means."""
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute) or module_name.startswith("."):
        raise click.BadParameter(f"expected MODULE:APP, got {name!r}", param_hint="MODULE:APP")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except TurnlogError:
        raise
    except Exception as error:  # noqa: BLE001  whatever the application's own code raises
        raise click.BadParameter(
            escape_controls(import_error_message(error, module_name)), param_hint="MODULE:APP"
        ) from None
    if not hasattr(module, attribute):
        file = getattr(module, "__file__", None) or "which is no file"
        problem = f"module {module_name!r} ({file}) has no attribute {attribute!r}"
        raise click.BadParameter(escape_controls(problem), param_hint="MODULE:APP")
    found = getattr(module, attribute)
    if not isinstance(found, turnlog.App):
        raise click.BadParameter(f"{name} is not a turnlog.App", param_hint="MODULE:APP")
    return found


def import_error_message(error: Exception, module_name: str) -> str:
    """Why a module cannot be had, and where its own code failed, if that did."""
    package = str(Path(turnlog.__file__).parent)
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [place for place in places if not place[0].startswith(package) and "importlib" not in place[0]]
    where = "".join(f" ({file}, line {line})" for file, line in own[-1:])
    if isinstance(error, ImportError) and not where:
        return str(error)
    return f"cannot import {module_name}: {type(error).__name__}, {error}{where}"
