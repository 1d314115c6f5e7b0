"""`turnlog link` and `turnlog open`: sign in at the console of a running server.

The server writes its address to a file beside its log. A user who may read that file and the key of the log
may sign in.
"""

import socket
import webbrowser
from urllib.parse import urlsplit

import click

from turnlog.cli.log import log_option
from turnlog.cli.log_access import find_session_id, open_cli_log, run_command
from turnlog.cli.serve import build_sign_in_link, has_screen

CONNECT_TIMEOUT_S = 5.0


@click.command(short_help="Print a new sign-in link.", epilog="Example: turnlog link sess_96cf1")
@click.argument("session", required=False, default="")
@log_option
def link(session: str, log_url: str) -> None:
    """Print a new link that signs you in at the server that runs on this log.

    With SESSION the link opens that session. It works once, for 15 minutes, and only for a server on a
    loopback address.
    """
    click.echo(build_console_link(log_url, session))


@click.command("open", short_help="Open the console in a browser.", epilog="Example: turnlog open")
@click.argument("session", required=False, default="")
@log_option
def open_command(session: str, log_url: str) -> None:
    """Open the console in a browser and sign in at the server that runs on this log.

    With SESSION it shows that session. Without a screen it prints the link.
    """
    address = build_console_link(log_url, session)
    if not (has_screen() and webbrowser.open(address)):
        click.echo(address)


def build_console_link(log_url: str, session: str) -> str:
    """Return a sign-in link for the server of a local log. Raise `ClickException` if none is running."""
    from turnlog.server.auth.credentials import BuiltinAuth
    from turnlog.server.auth.keys import is_local_log, load_or_create_key, read_server_file

    if not is_local_log(log_url):
        raise click.ClickException(
            "this command finds the server of a log on this machine only; a server on PostgreSQL prints a "
            "link when it starts, and when Enter is pressed in its terminal"
        )
    running = read_server_file(log_url)
    if running is None or not is_listening(running.address):
        advice = "start one with `turnlog serve`, or choose another log with --log"
        raise click.ClickException(f"no server is running on this log; {advice}")
    if not running.start:
        raise click.ClickException(
            f"{running.address} is reachable from other machines; sign in there with a token"
        )
    session_id = run_command(resolve_session_id(log_url, session)) if session else ""
    return build_sign_in_link(
        running.address, BuiltinAuth(load_or_create_key(log_url), start_id=running.start), session_id
    )


async def resolve_session_id(log_url: str, session: str) -> str:
    async with open_cli_log(log_url) as log:
        return await find_session_id(log, session)


def is_listening(address: str) -> bool:
    # A server that was killed leaves its file behind: so try to connect.
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


COMMANDS = (link, open_command)
