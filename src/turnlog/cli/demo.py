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

from turnlog.cli.serve import PORT, has_screen, listening, say_links, say_where

if TYPE_CHECKING:
    from turnlog.app import App

NAMES = ("assistant", "pipeline", "weights", "broker", "office")
STAGE = "turnlog_examples.demo"  # makes the applications; the package itself knows none
KEY = "ANTHROPIC_API_KEY"
MODEL = "claude-sonnet-4-5"
NO_PACKAGE = f"{KEY} is set, but the package anthropic is not here (pip install 'turnlog[anthropic]')."


@click.command(epilog="Example: turnlog demo broker --no-browser")
@click.argument("name", metavar="[NAME]", type=click.Choice(NAMES), default=NAMES[0])
@click.option("--port", type=PORT, default=0, help="The port; a free one if not given.")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser, if there is one.")
def demo(name: str, port: int, browser: bool) -> None:
    """Run the five example systems: no key, no network, no questions. Enter prints a new link to sign in.

    NAME is the one to begin with: assistant (the default), pipeline, weights, broker or office. Their words
    are scripted, and what they write is gone when the demo stops. With an ANTHROPIC_API_KEY in the
    environment a real model speaks, except in the office, whose process is played.
    """
    from turnlog.agents.runtime.executor import explain
    from turnlog.app import Principal
    from turnlog.cli.terminal_log import terminal_formatter
    from turnlog.events.roles import EXECUTOR
    from turnlog.server import create_app
    from turnlog.server.access_log import set_up
    from turnlog.server.auth.credentials import Auth, token_hash
    from turnlog.server.auth.keys import key_of
    from turnlog.server.uvicorn_server import serve

    set_up("error", terminal_formatter())  # what fails on stage is shown on the page
    stage = importlib.import_module(STAGE)
    token, worker = secrets.token_urlsafe(32), Principal("executor", frozenset({EXECUTOR}))
    with listening("127.0.0.1", port) as (listener, address), temporary() as folder:
        log_url = f"sqlite:///{folder}/demo.db"
        made: dict[str, App] = stage.make_apps(folder, model=real_model())
        apps = [made[name], *[app for app in made.values() if app.name != name]]
        auth = Auth(key_of(log_url), {token_hash(token): worker})
        [first, *_] = asyncio.run(first_sessions(log_url, apps))

        def begun() -> None:
            say_where(address)
            link = say_links(address, auth, first)
            click.echo(tried(apps))
            sys.stdout.flush()
            if browser and has_screen():
                webbrowser.open(link)

        with stage.executing(address, folder, token):
            serve(create_app(apps, log_url, auth=auth, describe=explain), listener, begun)


def temporary() -> "tempfile.TemporaryDirectory[str]":
    """A folder that is gone afterwards, whatever is still written to it."""
    return tempfile.TemporaryDirectory(prefix="turnlog-demo-", ignore_cleanup_errors=True)


async def first_sessions(log_url: str, apps: "Iterable[App]") -> list[str]:
    """A session of each application to begin with, of who starts the demo."""
    from turnlog.app import LOCAL
    from turnlog.app.sessions import make_session
    from turnlog.log import open_log

    log = await open_log(log_url)
    try:
        return [await make_session(log, app, LOCAL) for app in apps]
    finally:
        await log.close()


def real_model() -> str | None:
    """The model that speaks in place of the scripts, if there is a key for it."""
    if not os.environ.get(KEY):
        return None
    if importlib.util.find_spec("anthropic") is None:
        click.echo(f"{NO_PACKAGE} The words are scripted.")
        return None
    click.echo(f"{KEY} is set: {MODEL} speaks, and costs what it costs.")
    return MODEL


def tried(apps: "list[App]") -> str:
    """What to try first, and what else there is."""
    first, *others = apps
    lines = [f"It begins with: {first.title}. Say for instance", *[f"  {one}" for one in first.tries]]
    return "\n".join([*lines, f"One click away: {', '.join(app.title for app in others)}."])
