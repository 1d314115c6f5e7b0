"""The command `turnlog`: a thin shell over the rooms. The only place that reads the environment.

Commands are in modules by what they are about: `demo` and `serve` run applications, `new` makes one, `log`,
`sessions`, `search` and `state` read and tend a log, `convert`, `assemble` and `parse` are filters. Here are
the group and what belongs to no log. Errors of Turnlog are one line, never a stack trace.
"""

import io
import json
import sys
from typing import Any

import click
import msgspec

import turnlog
from turnlog.cli import chat, link, log, search, serve, sessions, state
from turnlog.cli.assemble import assemble as assemble_command
from turnlog.cli.convert import convert_command as convert_command
from turnlog.cli.demo import demo as demo_command
from turnlog.cli.new import new as new_command
from turnlog.cli.parse import parse_command as parse_command
from turnlog.cli.serve import load_app, run_server
from turnlog.cli.terminal import escape_controls
from turnlog.errors import TurnlogError
from turnlog.events import CATALOG, Envelope

__all__ = ["load_app", "main", "run_server"]


COMPLETION_HELP = """\b
Tab completes commands and options after
  eval "$(_TURNLOG_COMPLETE=bash_source turnlog)"    (or zsh_source)
"""


class TurnlogGroup(click.Group):
    """Errors of Turnlog, and files that cannot be read or written, are messages, not stack traces."""

    def main(self, *args: Any, **given: Any) -> Any:
        try:
            return super().main(*args, **given)
        except OSError as error:  # click has seen to pipes whose reader has gone
            where = f"{error.filename}: " if error.filename else ""
            click.echo(escape_controls(f"Error: {where}{error.strerror}"), err=True)
            sys.stdout = io.StringIO()  # what the real one still holds would fail again at the end
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


@main.command(short_help="Print JSON Schema of events.", epilog="Example: turnlog schema tool.call")
@click.argument("type_name", metavar="[TYPE]", required=False)
@click.option("--app", metavar="MODULE:APP", help="An application, for its own events too.")
def schema(type_name: str | None, app: str | None) -> None:
    """Print JSON Schema: of the payload of TYPE, or of the envelope and every payload."""
    catalog = load_app(app).catalog if app else CATALOG
    if type_name is None:
        payloads = {kind.name: msgspec.json.schema(kind.payload_class) for kind in catalog}
        document = {"envelope": msgspec.json.schema(Envelope), "payloads": payloads}
    elif type_name in catalog.types:
        document = msgspec.json.schema(catalog.get_event_type(type_name).payload_class)
    else:
        known = ", ".join(catalog.types)
        raise click.BadParameter(f"no event type {type_name!r}. There are: {known}", param_hint="TYPE")
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
    convert_command,
    assemble_command,
    parse_command,
):
    main.add_command(command)
