"""`turnlog serve` runs applications, `turnlog token` makes access tokens.

The server is imported when a command runs: `turnlog --help` must start quickly.
"""

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
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

import turnlog
from turnlog.cli.enter import call_on_enter
from turnlog.cli.log_access import LOG_OPTION
from turnlog.cli.terminal import escape_controls
from turnlog.errors import CallerError, TurnlogError

if TYPE_CHECKING:
    from turnlog.app import Principal
    from turnlog.app.sessions import Role
    from turnlog.server.auth.credentials import BuiltinAuth, TokenVerifier

PORT_RANGE = click.IntRange(0, 65535)
LOOPBACK = ("127.0.0.1", "::1", "localhost")
TOKEN_VARIABLE = "TURNLOG_TOKEN"
SCREEN_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
DRAIN_S = 25.0  # within the 30 s that Kubernetes waits
PORT_IN_USE_HINT = "; choose another port with --port, or a free one with --port 0"


class TokenFiles(NamedTuple):
    """Files that configure which tokens are accepted."""

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
    "--port", type=PORT_RANGE, default=8765, show_default=True, help="The port; 0 chooses a free one."
)
@click.option("--tokens", type=click.Path(path_type=Path), help="A file with tokens, see `turnlog token`.")
@click.option(
    "--jwt", type=click.Path(path_type=Path), help="A file that configures JSON Web Tokens, see above."
)
@click.option(
    "--allow-host",
    multiple=True,
    callback=lambda context, option, value: check_host_names(value),
    help="A host name that clients use for this server. Can be repeated.",
)
@click.option(
    "--allow-origin",
    metavar="ORIGIN",
    multiple=True,
    callback=lambda context, option, value: check_origins(value),
    help="An origin, such as https://app.example.org, whose pages may use this server. Can be repeated.",
)
@click.option(
    "--journal",
    type=click.Choice(["info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="The lowest level that is logged to stderr; info logs every request. The log is text on a terminal, "
    "else lines of JSON.",
)
@click.option(
    "--debug",
    is_flag=True,
    help="Show tool errors to all members, not only that a tool failed. Works on this machine only.",
)
@click.option(
    "--dialect",
    metavar="NAME",
    help="The dialect of readers who name none, in place of the applications' own.",
)
@click.option(
    "--heartbeat",
    "heartbeat_s",
    type=click.FloatRange(min=0.1),
    default=15.0,
    show_default=True,
    help="Seconds of silence after which a stream gets a heartbeat; less if a proxy cuts silent streams.",
)
@click.option(
    "--without-protocol",
    metavar="NAME",
    multiple=True,
    callback=lambda context, option, value: check_protocol_names(value),
    help="A protocol of another project that is not served. Can be repeated.",
)
@click.option(
    "--role",
    type=click.Choice(["web", "worker", "both"]),
    default="both",
    show_default=True,
    help="For a log that several processes share: web serves clients, worker runs sessions.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help="A file with a secret of at least 32 characters that signs cookies and links. Servers that share a "
    "log need the same one; the environment variable TURNLOG_KEY is another way.",
)
@click.option(
    "--drain",
    "drain_s",
    type=click.FloatRange(min=0),
    help="Seconds after a stop signal in which other servers take over the sessions and streams. "
    "[default: 25 for a log that several processes share, else 0]",
)
def serve_command(  # noqa: PLR0913  the options of the command
    apps: tuple[str, ...],
    log_url: str,
    host: str,
    port: int,
    tokens: Path | None,
    jwt: Path | None,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
    journal: str,
    debug: bool,
    dialect: str | None,
    heartbeat_s: float,
    without_protocol: tuple[str, ...],
    role: "Role",
    key_file: Path | None,
    drain_s: float | None,
) -> None:
    """Serve one or more applications. `turnlog serve app:app` serves `app` from the file app.py.

    The server prints a sign-in link that works once. Press Enter, or run `turnlog link`, for a new one.
    Programs send the token in the environment variable TURNLOG_TOKEN.

    By default the server listens on this machine only. To listen on a public address (--host), configure
    access with --tokens, --jwt or TURNLOG_TOKEN.

    The file of --jwt (TOML or JSON) needs key_file or jwks_url, algorithms, audience and issuer. Optional
    fields are name (a prefix for the names of its principals), roles_claim, and roles (a map from the roles
    of the provider to operator, executor or source).

    With --log postgresql://... any number of servers share a log, on any number of machines.
    """
    if role != "both" and is_local_log_url(log_url):
        problem = f"a {role} needs a log that several processes share: --log postgresql://..."
        raise click.BadParameter(problem, param_hint="--role")
    if host not in LOOPBACK and not (tokens or jwt or os.environ.get(TOKEN_VARIABLE)):
        advice = f"configure access with --tokens, --jwt or {TOKEN_VARIABLE}"
        raise click.BadParameter(f"other machines can reach this address; {advice}", param_hint="--host")
    if debug and (host not in LOOPBACK or allow_host):
        problem = (
            "tool errors may contain secrets; --debug works on a loopback address only, without --allow-host"
        )
        raise click.BadParameter(problem, param_hint="--debug")
    files = TokenFiles(tokens, jwt)
    run_server(
        apps,
        log_url,
        host,
        port,
        tokens=files,
        hosts=allow_host,
        origins=allow_origin,
        journal=journal,
        debug=debug,
        dialect=dialect,
        heartbeat_s=heartbeat_s,
        without_protocols=without_protocol,
        role=role,
        key_file=key_file,
        drain_s=drain_s,
    )


@click.command(
    short_help="Make a token for a person or a program.", epilog="Example: turnlog token ada --role operator"
)
@click.argument("name")
@click.option("--role", "roles", multiple=True, help="A server role: operator, executor or source.")
def token(name: str, roles: tuple[str, ...]) -> None:
    """Make a token for NAME, a person or a program.

    It prints the token, and a line with its hash for the file of `turnlog serve --tokens`.
    """
    from turnlog.server.auth.credentials import hash_token
    from turnlog.server.auth.keys import TokenEntry, encode_tokens

    secret = secrets.token_urlsafe(32)
    line = encode_tokens({name: TokenEntry(hash_token(secret), roles)})
    click.echo(f"The token of {name}. Copy it now: it is not stored.\n  {secret}")
    click.echo(f"Add this line, which has only its hash, to the file of `turnlog serve --tokens`:\n  {line}")


COMMANDS = (serve_command, token)


def run_server(  # noqa: PLR0913  the options of the command
    apps: Sequence[str],
    log_url: str,
    host: str,
    port: int,
    *,
    tokens: TokenFiles = TokenFiles(),  # noqa: B008
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    journal: str = "warning",
    debug: bool = False,
    dialect: str | None = None,
    heartbeat_s: float = 15.0,
    without_protocols: Sequence[str] = (),
    role: "Role" = "both",
    key_file: Path | None = None,
    drain_s: float | None = None,
) -> None:
    from turnlog.agents.runtime.executor import explain_tool_error, mask_tool_error
    from turnlog.cli.terminal_log import make_terminal_formatter
    from turnlog.server import create_app
    from turnlog.server.auth import host_check
    from turnlog.server.auth.credentials import BuiltinAuth
    from turnlog.server.auth.keys import (
        RunningServer,
        delete_server_file,
        log_sibling_path,
        write_server_file,
    )
    from turnlog.server.auth.revocation import RevokedCookies
    from turnlog.server.auth.token_file import TokenFile
    from turnlog.server.limits.policy import Limits
    from turnlog.server.log_format import configure_logging
    from turnlog.server.protocols import PROTOCOLS
    from turnlog.server.uvicorn_server import serve as run

    configure_logging(journal, make_terminal_formatter())
    loaded_apps = [load_app(app) for app in apps]
    token_principals = load_tokens(tokens.token_hashes)
    verify_token = make_token_verifier(tokens.jwt_config)
    with open_listener(host, port) as (listener, address), ExitStack() as exit_stack:
        revoked = RevokedCookies(log_sibling_path(log_url, ".revoked"), time.time())
        key = load_key(log_url, key_file)
        # a sign-in link of one server works at all servers of a shared log
        start_id = "" if is_local_log_url(log_url) else sha256(b"start:" + key).hexdigest()
        auth = BuiltinAuth(key, token_principals, verify_token, start_id, revoked_cookies=revoked)
        host_names = (*host_check.LOOPBACK, *host_header_names(host), *hosts)
        describe = explain_tool_error if debug else mask_tool_error
        protocols = [make() for name, make in PROTOCOLS.items() if name not in without_protocols]
        application = create_app(
            loaded_apps,
            log_url,
            auth=auth,
            hosts=host_names,
            limits=Limits(heartbeat_interval_s=heartbeat_s),
            describe=describe,
            dialect=dialect,
            protocols=protocols,
            origins=origins,
            role=role,
        )

        def on_started() -> None:
            write_server_file(log_url, RunningServer(address, auth.start_id if host in LOOPBACK else ""))
            exit_stack.callback(delete_server_file, log_url)
            if role == "worker":
                click.echo(f"This worker runs sessions. Its health: {address}healthz  (stop with Ctrl+C)")
                sys.stdout.flush()
                return
            print_address(address)
            if host in LOOPBACK:
                print_sign_in_links(address, auth)
            elif not hosts and not host_header_names(host):
                click.echo(
                    "The server accepts requests for localhost only. "
                    "Add the names that clients use with --allow-host"
                )
            sys.stdout.flush()

        path = tokens.token_hashes
        token_file = None
        if path:
            token_file = TokenFile(path, lambda: load_tokens(path) or {}, application.state.set_tokens)
        if drain_s is None:
            drain_s = 0.0 if is_local_log_url(log_url) else DRAIN_S
        run(application, listener, on_started, token_file, drain_s)


def is_local_log_url(log_url: str) -> bool:
    from turnlog.server.auth.keys import is_local_log

    return is_local_log(log_url)


def load_key(log_url: str, key_file: Path | None) -> bytes:
    """Return the signing key: of a file, of the environment, or the one beside a local log."""
    from turnlog.server.auth.keys import KEY_VARIABLE, derive_key, load_or_create_key, read_key_file

    if key_file is not None:
        return read_key_file(key_file)
    secret = os.environ.get(KEY_VARIABLE)
    return derive_key(secret.encode(), KEY_VARIABLE) if secret else load_or_create_key(log_url)


@contextmanager
def open_listener(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """Yield a listening socket and its URL. Raise `ClickException` if it cannot listen."""
    from turnlog.server.uvicorn_server import listen

    try:
        listener = listen(host, port)
    except OSError as error:
        advice = PORT_IN_USE_HINT if error.errno == errno.EADDRINUSE else ""
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}{advice}") from None
    with listener:
        yield listener, f"http://{url_host(host)}:{listener.getsockname()[1]}/"


def build_sign_in_link(address: str, auth: "BuiltinAuth", session_id: str = "") -> str:
    return f"{address}sign-in?code={auth.make_sign_in_code(time.time(), session_id)}"


def print_address(address: str) -> None:
    click.echo(f"Turnlog is at {address}  (stop with Ctrl+C)")


def print_sign_in_link(link: str) -> None:
    click.echo(f"Open this link to sign in. It works once: {link}")


def print_sign_in_links(address: str, auth: "BuiltinAuth", session_id: str = "") -> str:
    """Print a sign-in link, and a new one whenever the user presses Enter. Return the first."""

    def print_new_link() -> None:
        print_sign_in_link(build_sign_in_link(address, auth, session_id))
        sys.stdout.flush()

    link = build_sign_in_link(address, auth, session_id)
    print_sign_in_link(link)
    if call_on_enter(print_new_link):
        click.echo("Press Enter for a new link.")
    return link


def has_screen() -> bool:
    """Return False if a browser would run in the terminal, where it would hide the server."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in SCREEN_VARIABLES)


def host_header_names(host: str) -> tuple[str, ...]:
    return () if host in ("0.0.0.0", "::") else (url_host(host),)


def check_host_names(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return lower-case host names. Raise `BadParameter` for text that cannot be a `Host`."""
    for host in hosts:
        if not re.fullmatch(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]", host):
            raise click.BadParameter(f"expected a name such as log.example.org, without a port, got {host!r}")
    return tuple(host.lower() for host in hosts)  # as browsers send them


def check_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    """Return the origins. Raise `BadParameter` for text that no browser sends as an origin."""
    from turnlog.server.auth.allowed_origins import AllowedOrigins

    try:
        AllowedOrigins(origins)
    except CallerError as error:
        raise click.BadParameter(str(error)) from None
    return origins


def check_protocol_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names. Raise `BadParameter` for one that is not a protocol of this package."""
    from turnlog.server.protocols import PROTOCOLS

    for name in names:
        if name not in PROTOCOLS:
            raise click.BadParameter(f"expected one of {', '.join(PROTOCOLS)}, got {name!r}")
    return names


def url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def load_tokens(file: Path | None) -> "dict[str, Principal] | None":
    """Return principals by token hash, from a file and the environment; None if neither is configured."""
    from turnlog.app import LOCAL
    from turnlog.server.auth.credentials import hash_token
    from turnlog.server.auth.keys import MIN_TOKEN_CHARS, read_token_entries

    principals = read_token_entries(file) if file else {}
    token = os.environ.get(TOKEN_VARIABLE)
    if token:
        if len(token) < MIN_TOKEN_CHARS:
            raise click.ClickException(
                f"expected a {TOKEN_VARIABLE} of at least {MIN_TOKEN_CHARS} characters"
            )
        principals[hash_token(token)] = LOCAL
    return principals if file or token else None


def make_token_verifier(file: Path | None) -> "TokenVerifier":
    from turnlog.server.auth.credentials import reject_token
    from turnlog.server.auth.jwt import load_jwt_tokens

    return load_jwt_tokens(file) if file else reject_token


def load_app(name: str) -> "turnlog.App":
    """Import the application `module:attribute`. Raise `BadParameter` if there is none."""
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
        file = getattr(module, "__file__", None) or "no file"
        problem = f"module {module_name!r} ({file}) has no attribute {attribute!r}"
        raise click.BadParameter(escape_controls(problem), param_hint="MODULE:APP")
    app = getattr(module, attribute)
    if not isinstance(app, turnlog.App):
        raise click.BadParameter(f"{name} is not a turnlog.App", param_hint="MODULE:APP")
    return app


def import_error_message(error: Exception, module_name: str) -> str:
    package = str(Path(turnlog.__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(package) and "importlib" not in frame.filename
    ]
    if isinstance(error, ImportError) and not frames:
        return str(error)

    message = f"cannot import {module_name}: {type(error).__name__}, {error}"
    if frames:
        message += f" ({frames[-1].filename}, line {frames[-1].lineno})"
    return message
