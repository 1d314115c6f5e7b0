"""`turnlog demo`: the five example systems in one server. What they write is gone when it stops."""

import asyncio
import importlib
import importlib.util
import os
import secrets
import sys
import tempfile
import webbrowser
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from turnlog.cli.serve import PORT_RANGE, has_screen, open_listener, print_address, print_sign_in_links

if TYPE_CHECKING:
    from turnlog.app import App

DEMO_NAMES = ("assistant", "pipeline", "weights", "broker", "office")
DEMO_MODULE = "turnlog_examples.demo"  # makes the applications; the package itself knows none
API_KEY_VARIABLE = "ANTHROPIC_API_KEY"
DEMO_MODEL = "claude-sonnet-4-5"
MISSING_PACKAGE_MESSAGE = (
    f"{API_KEY_VARIABLE} is set, but the package anthropic is not here (pip install 'turnlog[anthropic]')."
)


@click.command(epilog="Example: turnlog demo broker --no-browser")
@click.argument("name", metavar="[NAME]", type=click.Choice(DEMO_NAMES), default=DEMO_NAMES[0])
@click.option("--port", type=PORT_RANGE, default=0, help="The port; a free one if not given.")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser, if there is one.")
def demo(name: str, port: int, browser: bool) -> None:
    """Run the five example systems: no key, no network, no questions. Enter prints a new link to sign in.

    NAME is the one to begin with: assistant (the default), pipeline, weights, broker or office. Their words
    are scripted, and what they write is gone when the demo stops. With an ANTHROPIC_API_KEY in the
    environment a real model speaks, except in the office, whose process is played.
    """
    from turnlog.agents.runtime.executor import explain_tool_error
    from turnlog.app import Principal
    from turnlog.cli.terminal_log import make_terminal_formatter
    from turnlog.events.roles import EXECUTOR
    from turnlog.server import create_app
    from turnlog.server.auth.credentials import BuiltinAuth, hash_token
    from turnlog.server.auth.keys import load_or_create_key
    from turnlog.server.log_format import configure_logging
    from turnlog.server.uvicorn_server import serve

    configure_logging("error", make_terminal_formatter())  # what fails on stage is shown on the page
    stage = importlib.import_module(DEMO_MODULE)
    token, worker = secrets.token_urlsafe(32), Principal("executor", frozenset({EXECUTOR}))
    with open_listener("127.0.0.1", port) as (listener, address), demo_directory() as folder:
        log_url = f"sqlite:///{folder}/demo.db"
        made: dict[str, App] = stage.make_apps(folder, model=choose_model())
        apps = [made[name], *[app for app in made.values() if app.name != name]]
        auth = BuiltinAuth(load_or_create_key(log_url), {hash_token(token): worker})
        [first, *_] = asyncio.run(create_first_sessions(log_url, apps))

        def begun() -> None:
            print_address(address)
            link = print_sign_in_links(address, auth, first)
            click.echo(first_steps_text(apps))
            sys.stdout.flush()
            if browser and has_screen():
                webbrowser.open(link)

        with stage.executing(address, folder, token):
            serve(create_app(apps, log_url, auth=auth, describe=explain_tool_error), listener, begun)


def demo_directory() -> "tempfile.TemporaryDirectory[str]":
    """A folder that is gone afterwards, whatever is still written to it."""
    return tempfile.TemporaryDirectory(prefix="turnlog-demo-", ignore_cleanup_errors=True)


async def create_first_sessions(log_url: str, apps: "Iterable[App]") -> list[str]:
    """A session of each application to begin with, of who starts the demo."""
    from turnlog.app import LOCAL
    from turnlog.app.session_creation import make_session
    from turnlog.log import open_log

    log = await open_log(log_url)
    try:
        return [await make_session(log, app, LOCAL) for app in apps]
    finally:
        await log.close()


def choose_model() -> str | None:
    """The model that speaks in place of the scripts, if there is a key for it."""
    if not os.environ.get(API_KEY_VARIABLE):
        return None
    if importlib.util.find_spec("anthropic") is None:
        click.echo(f"{MISSING_PACKAGE_MESSAGE} The words are scripted.")
        return None
    click.echo(f"{API_KEY_VARIABLE} is set: {DEMO_MODEL} speaks, and costs what it costs.")
    return DEMO_MODEL


def first_steps_text(apps: "list[App]") -> str:
    """What to try first, and what else there is."""
    first, *others = apps
    lines = [f"It begins with: {first.title}. Say for instance", *[f"  {one}" for one in first.suggestions]]
    return "\n".join([*lines, f"One click away: {', '.join(app.title for app in others)}."])
