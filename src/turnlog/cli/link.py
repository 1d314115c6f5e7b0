"""`turnlog link` and `turnlog open`: into the console of a server that is running, without starting it again.

The server notes beside its log where it is. Whoever may read that note and the log's key may sign in.
"""

import socket
import webbrowser
from urllib.parse import urlsplit

import click

from turnlog.cli.log import log_option
from turnlog.cli.log_access import find_session_id, open_cli_log, run_command
from turnlog.cli.serve import build_sign_in_link, has_screen

CONNECT_TIMEOUT_S = 5.0


@click.command(short_help="Print a new link to sign in.", epilog="Example: turnlog link sess_96cf1")
@click.argument("session", required=False, default="")
@log_option
def link(session: str, log_url: str) -> None:
    """Print a new link that signs you in, once: to the server that runs on this log.

    With SESSION it leads there. It works for a quarter of an hour, for a server on a loopback address.
    """
    click.echo(build_console_link(log_url, session))


@click.command("open", short_help="Open the console in a browser.", epilog="Example: turnlog open")
@click.argument("session", required=False, default="")
@log_option
def open_command(session: str, log_url: str) -> None:
    """Open the console of the server that runs on this log in a browser, signed in.

    With SESSION it shows that session. Where there is no screen, the link is printed.
    """
    address = build_console_link(log_url, session)
    if not (has_screen() and webbrowser.open(address)):
        click.echo(address)


def build_console_link(log_url: str, session: str) -> str:
    """Return a link that signs in at the server of a log; raise `ClickException` if none runs there."""
    from turnlog.server.auth.credentials import BuiltinAuth
    from turnlog.server.auth.keys import load_or_create_key, read_server_file

    running = read_server_file(log_url)
    if running is None or not is_listening(running.address):
        raise click.ClickException(
            "no server runs on this log: start one with `turnlog serve`, or name another --log"
        )
    if not running.start:
        raise click.ClickException(f"others reach {running.address}, so people sign in there with a token")
    session_id = run_command(resolve_session_id(log_url, session)) if session else ""
    return build_sign_in_link(
        running.address, BuiltinAuth(load_or_create_key(log_url), start_id=running.start), session_id
    )


async def resolve_session_id(log_url: str, session: str) -> str:
    """Return the id of a session that a person named."""
    async with open_cli_log(log_url) as log:
        return await find_session_id(log, session)


def is_listening(address: str) -> bool:
    """Whether a process takes connections there: a server that was killed leaves its note behind."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


COMMANDS = (link, open_command)
