"""Commands that run an application: `demo`, `serve`, `token`. They import the server when they run."""

import importlib
import os
import secrets
import sys
import tempfile
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import turnlog

if TYPE_CHECKING:
    from turnlog.server.auth import Auth

PORT = click.IntRange(0, 65535)
DEMOS = {"tour": "turnlog_examples.tour:app"}
LOOPBACK = ("127.0.0.1", "::1", "localhost")
TOKEN = "TURNLOG_TOKEN"


@click.command()
@click.argument("name", type=click.Choice(list(DEMOS)), default="tour")
@click.option("--port", type=PORT, default=0, help="The port; a free one if not given.")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser, if there is one.")
def demo(name: str, port: int, browser: bool) -> None:
    """Run an example application: no key, no network, no questions."""
    with tempfile.TemporaryDirectory(prefix="turnlog-demo-") as folder:
        run_server([DEMOS[name]], f"sqlite:///{folder}/demo.db", port=port, browser=browser)


@click.command()
@click.argument("apps", metavar="MODULE:APP...", nargs=-1, required=True)
@click.option("--log", "log_url", default="sqlite:///turnlog.db", show_default=True, help="Where the log is.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=PORT, default=8765, show_default=True, help="The port; 0 takes a free one.")
@click.option("--tokens", type=click.Path(path_type=Path), help="A file of tokens, see `turnlog token`.")
@click.option("--allow-host", multiple=True, help="A name this server answers for, if not loopback.")
@click.option(
    "--journal", type=click.Choice(["info", "warning", "error"]), default="warning", show_default=True
)
def serve(
    apps: tuple[str, ...],
    log_url: str,
    host: str,
    port: int,
    tokens: Path | None,
    allow_host: tuple[str, ...],
    journal: str,
) -> None:
    """Serve the application APP of the Python module MODULE, or several.

    On a loopback address the first link that is printed signs you in; programs use the token in the
    environment variable TURNLOG_TOKEN. Elsewhere --tokens or TURNLOG_TOKEN is needed.
    """
    if host not in LOOPBACK and tokens is None and TOKEN not in os.environ:
        problem = f"only a loopback address can be served without --tokens or {TOKEN}"
        raise click.BadParameter(problem, param_hint="--host")
    run_server(apps, log_url, host, port, tokens=tokens, hosts=allow_host, journal=journal)


@click.command()
@click.argument("name")
@click.option(
    "--role", "roles", multiple=True, help="A role it has in every session, such as owner, executor."
)
def token(name: str, roles: tuple[str, ...]) -> None:
    """Make a token for NAME: the token itself, and the line for the file of --tokens."""
    from turnlog.server.auth import token_hash
    from turnlog.server.keys import TokenLine, lines_of

    made = secrets.token_urlsafe(32)
    click.echo(f"The token, shown only now:\n  {made}")
    click.echo(f"For the file of tokens:\n  {lines_of({name: TokenLine(token_hash(made), roles)})}")


COMMANDS = (demo, serve, token)


def run_server(
    apps: Sequence[str],
    log_url: str,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    browser: bool = False,
    tokens: Path | None = None,
    hosts: Sequence[str] = (),
    journal: str = "warning",
) -> None:
    """Listen, print the address, serve until stopped."""
    from turnlog.server import create_app, guard
    from turnlog.server.serve import listen
    from turnlog.server.serve import serve as run

    auth = sign_in(log_url, tokens)
    loaded = [load_app(app) for app in apps]
    application = create_app(loaded, log_url, auth=auth, hosts=(*guard.LOOPBACK, *hosts))
    try:
        listener = listen(host, port)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from None
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listener.getsockname()[1]}/"
    link = f"{address}sign-in?code={auth.sign_in_code(time.time())}" if host in LOOPBACK else address
    click.echo(f"Turnlog is at {address}  (stop with Ctrl+C)")
    if host in LOOPBACK:
        click.echo(f"Open this link once to sign in: {link}")
    sys.stdout.flush()
    if browser:
        webbrowser.open(link)
    run(application, listener)


def sign_in(log_url: str, tokens: Path | None) -> "Auth":
    """Who may come in: by the links of this log's key, by the tokens of a file and of the environment."""
    from turnlog.app import LOCAL
    from turnlog.server.auth import Auth, token_hash
    from turnlog.server.keys import TOKEN_CHARS, key_of, tokens_in

    known = tokens_in(tokens) if tokens else {}
    if given := os.environ.get(TOKEN):
        if len(given) < TOKEN_CHARS:
            raise click.ClickException(f"expected a {TOKEN} of at least {TOKEN_CHARS} characters")
        known[token_hash(given)] = LOCAL
    return Auth(key_of(log_url), known)


def load_app(name: str) -> "turnlog.App":
    """The application that `module:name` means."""
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute) or module_name.startswith("."):
        raise click.BadParameter(f"expected MODULE:APP, got {name!r}", param_hint="MODULE:APP")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(str(error), param_hint="MODULE:APP") from None
    if not isinstance(found, turnlog.App):
        raise click.BadParameter(f"{name} is not a turnlog.App", param_hint="MODULE:APP")
    return found
