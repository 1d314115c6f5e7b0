"""Commands that run an application: `demo` and `serve`. The server is imported when one of them runs."""

import importlib
import sys
import tempfile
import webbrowser
from pathlib import Path

import click

import turnlog

PORT = click.IntRange(0, 65535)
DEMOS = {"tour": "turnlog_examples.tour:app"}


@click.command()
@click.argument("name", type=click.Choice(list(DEMOS)), default="tour")
@click.option("--port", type=PORT, default=0, help="The port; a free one if not given.")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser, if there is one.")
def demo(name: str, port: int, browser: bool) -> None:
    """Run an example application: no key, no network, no questions."""
    with tempfile.TemporaryDirectory(prefix="turnlog-demo-") as folder:
        run_server(DEMOS[name], f"sqlite:///{folder}/demo.db", "127.0.0.1", port, browser)


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.option("--log", "log_url", default="sqlite:///turnlog.db", show_default=True, help="Where the log is.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=PORT, default=8765, show_default=True, help="The port; 0 takes a free one.")
def serve(app: str, log_url: str, host: str, port: int) -> None:
    """Serve the application APP of the Python module MODULE."""
    if host not in ("127.0.0.1", "::1", "localhost"):
        raise click.BadParameter("only a loopback address can be served without sign-in", param_hint="--host")
    run_server(app, log_url, host, port, browser=False)


COMMANDS = (demo, serve)


def run_server(app: str, log_url: str, host: str, port: int, browser: bool) -> None:
    """Listen, print the address, serve until stopped."""
    from turnlog.server import create_app
    from turnlog.server.serve import listen
    from turnlog.server.serve import serve as run

    application = create_app(load_app(app), log_url)
    try:
        listener = listen(host, port)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from None
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listener.getsockname()[1]}/"
    click.echo(f"Turnlog is at {address}  (stop with Ctrl+C)")
    sys.stdout.flush()
    if browser:
        webbrowser.open(address)
    run(application, listener)


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
