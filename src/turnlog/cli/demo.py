"""`turnlog demo`: run the seven example applications in one server, on a log that is deleted afterwards."""

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

DEMO_NAMES = ("assistant", "pipeline", "weights", "broker", "office", "support", "shop")
DEMO_MODULE = "turnlog_examples.demo"  # by name: this package does not depend on the examples
API_KEY_VARIABLE = "ANTHROPIC_API_KEY"
DEMO_MODEL = "claude-sonnet-4-5"
MISSING_PACKAGE_MESSAGE = (
    f"{API_KEY_VARIABLE} is set, but the package anthropic is not installed "
    "(pip install 'turnlog[anthropic]')."
)


@click.command(
    short_help="Run the seven example applications.", epilog="Example: turnlog demo broker --no-browser"
)
@click.argument("name", metavar="[NAME]", type=click.Choice(DEMO_NAMES), default=DEMO_NAMES[0])
@click.option("--port", type=PORT_RANGE, default=0, help="The port; default: a free one.")
@click.option(
    "--browser/--no-browser", default=True, help="Open the console in a browser, if there is a screen."
)
def demo(name: str, port: int, browser: bool) -> None:
    """Run the seven example applications, without a key and without a network.

    NAME is the application to open first: assistant (the default), pipeline, weights, broker, office,
    support or shop. Press Enter for a new sign-in link. The log is deleted when the demo stops. Answers are
    scripted. If the environment variable ANTHROPIC_API_KEY is set, a real model answers, except in the
    office, the support and the shop.
    """
    from turnlog.agents.runtime.executor import explain_tool_error
    from turnlog.app import Principal
    from turnlog.cli.terminal_log import make_terminal_formatter
    from turnlog.events.roles import EXECUTOR, SOURCE
    from turnlog.server import create_app
    from turnlog.server.auth.credentials import BuiltinAuth, hash_token
    from turnlog.server.auth.keys import load_or_create_key
    from turnlog.server.log_format import configure_logging
    from turnlog.server.uvicorn_server import serve

    configure_logging("error", make_terminal_formatter())  # the console shows failures of agents itself
    examples = importlib.import_module(DEMO_MODULE)
    token = secrets.token_urlsafe(32)
    worker = Principal("worker", frozenset({EXECUTOR, SOURCE}))
    with (
        open_listener("127.0.0.1", port) as (listener, address),
        open_listener("127.0.0.1", 0) as (agent_listener, agent_address),
        demo_directory() as folder,
    ):
        log_url = f"sqlite:///{folder}/demo.db"
        apps_by_name: dict[str, App] = examples.make_apps(
            folder, f"{agent_address}agent", model=choose_model()
        )
        apps = [apps_by_name[name], *[app for app in apps_by_name.values() if app.name != name]]
        auth = BuiltinAuth(load_or_create_key(log_url), {hash_token(token): worker})
        first_session = asyncio.run(create_first_sessions(log_url, apps))[0]

        def on_started() -> None:
            print_address(address)
            link = print_sign_in_links(address, auth, first_session)
            click.echo(first_steps_text(apps))
            sys.stdout.flush()
            if browser and has_screen():
                webbrowser.open(link)

        with examples.executing(address, folder, token, agent_listener):
            serve(create_app(apps, log_url, auth=auth, describe=explain_tool_error), listener, on_started)


def demo_directory() -> "tempfile.TemporaryDirectory[str]":
    # A worker may still write a file while the folder is deleted.
    return tempfile.TemporaryDirectory(prefix="turnlog-demo-", ignore_cleanup_errors=True)


async def create_first_sessions(log_url: str, apps: "Iterable[App]") -> list[str]:
    from turnlog.app import LOCAL
    from turnlog.app.session_creation import make_session
    from turnlog.log import open_log

    log = await open_log(log_url)
    try:
        return [await make_session(log, app, LOCAL) for app in apps]
    finally:
        await log.close()


def choose_model() -> str | None:
    """Return the model that replaces the scripts; None without an API key."""
    if not os.environ.get(API_KEY_VARIABLE):
        return None
    if importlib.util.find_spec("anthropic") is None:
        click.echo(f"{MISSING_PACKAGE_MESSAGE} The answers are scripted.")
        return None
    click.echo(f"{API_KEY_VARIABLE} is set: {DEMO_MODEL} answers, and its usage is billed.")
    return DEMO_MODEL


def first_steps_text(apps: "list[App]") -> str:
    first, *others = apps
    lines = [f"The first application is {first.title}. You can write, for example:"]
    lines += [f"  {suggestion}" for suggestion in first.suggestions]
    lines.append(f"Other applications: {', '.join(app.title for app in others)}.")
    return "\n".join(lines)
