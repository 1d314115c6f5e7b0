"""The command `turnlog`: a thin layer over the other packages. Only this package reads the environment.

`demo` and `serve` run applications, `new` creates one. `log`, `sessions`, `search` and `state` read and
maintain a log. `convert`, `assemble` and `parse` are filters. This module has the command group and `schema`.
Errors of Turnlog are printed as one line, never as a stack trace.
"""

import io
import json
import sys
from typing import Any

import click
import msgspec

import turnlog
from turnlog.cli import chat, cluster_check, link, log, search, serve, sessions, state
from turnlog.cli.assemble import assemble as assemble_command
from turnlog.cli.convert import convert_command as convert_command
from turnlog.cli.demo import demo as demo_command
from turnlog.cli.new import new as new_command
from turnlog.cli.parse import parse_command as parse_command
from turnlog.cli.serve import load_app, run_server
from turnlog.cli.terminal import escape_controls
from turnlog.errors import TurnlogError
from turnlog.events import Envelope, view_nodes
from turnlog.vocabularies import FULL_CATALOG

__all__ = ["load_app", "main", "run_server"]


COMPLETION_HELP = """\b
Turn on completion with Tab (zsh: zsh_source):
  eval "$(_TURNLOG_COMPLETE=bash_source turnlog)"
"""


class TurnlogGroup(click.Group):
    """A group that prints errors of Turnlog and of the file system as messages, not as stack traces."""

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except OSError as error:  # click itself handles a closed pipe
            prefix = f"{error.filename}: " if error.filename else ""
            click.echo(escape_controls(f"Error: {prefix}{error.strerror}"), err=True)
            sys.stdout = io.StringIO()  # flushing the real one at exit would fail again
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TurnlogError as error:
            raise click.ClickException(escape_controls(str(error))) from error


@click.group(
    cls=TurnlogGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=COMPLETION_HELP
)
@click.version_option(turnlog.__version__, prog_name="turnlog")
def main() -> None:
    """The event log between AI agents and the people and programs that watch them."""


@main.command(short_help="Print the JSON Schema of events.", epilog="Example: turnlog schema tool.call")
@click.argument("type_name", metavar="[TYPE]", required=False)
@click.option("--app", metavar="MODULE:APP", help="Include the events of this application.")
def schema(type_name: str | None, app: str | None) -> None:
    """Print the JSON Schema of the payload of TYPE, or of the envelope, all payloads and views."""
    catalog = load_app(app).catalog if app else FULL_CATALOG
    if type_name is None:
        payloads = {event_type.name: msgspec.json.schema(event_type.payload_class) for event_type in catalog}
        document = {
            "envelope": msgspec.json.schema(Envelope),
            "payloads": payloads,
            "view": msgspec.json.schema(view_nodes.Root),
        }
    elif type_name in catalog.types:
        document = msgspec.json.schema(catalog.get_event_type(type_name).payload_class)
    else:
        names = ", ".join(catalog.types)
        raise click.BadParameter(f"no event type {type_name!r}; choose one of: {names}", param_hint="TYPE")
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


for command in (
    demo_command,
    new_command,
    *serve.COMMANDS,
    *chat.COMMANDS,
    *link.COMMANDS,
    *sessions.COMMANDS,
    *log.COMMANDS,
    *search.COMMANDS,
    *state.COMMANDS,
    *cluster_check.COMMANDS,
    convert_command,
    assemble_command,
    parse_command,
):
    main.add_command(command)
