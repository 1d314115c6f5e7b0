"""The executor: another process, with the table. It is a client of the server and nothing else.

    python -m turnlog_examples.weights.executor --url http://127.0.0.1:8765

It runs the calls of one session, or of all sessions of the application, also of those that come later. Its
token is in TURNLOG_TOKEN; it needs the role `executor` there (`turnlog token weights --role executor`).
"""

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from turnlog.agents import Tool, ToolContext
from turnlog.agents.remote import RemoteExecutor, RemoteExecutorPool
from turnlog.errors import TurnlogError
from turnlog_examples.weights.contract import (
    Entry,
    make_delete,
    weight_audit_list,
    weight_entries_list,
    weight_entry_save_batch,
)
from turnlog_examples.weights.table import Caller, WeightTable

APP = "weights"


def caller_of(context: ToolContext) -> Caller:
    """Who calls, and by which key; the call's own id is one, so a call that is run twice counts once."""
    return Caller(
        context.actor or "", context.session_id, context.tool, context.idempotency_key, context.call_id
    )


def make_tools(table: WeightTable) -> tuple[Tool, ...]:
    """The contract with functions behind it."""

    def save(rows: list[Entry], context: ToolContext) -> dict[str, Any]:
        return table.save(caller_of(context), rows)

    def delete(ids: list[str], context: ToolContext) -> dict[str, Any]:
        return table.delete(caller_of(context), ids)

    def newest(limit: int, context: ToolContext) -> dict[str, Any]:
        return {"rows": table.newest(context.actor or "", limit)}

    def audit(limit: int, context: ToolContext) -> dict[str, Any]:
        return {"changes": table.audit(context.actor or "", limit)}

    pairs = (
        (weight_entry_save_batch, save),
        (make_delete(), delete),
        (weight_entries_list, newest),
        (weight_audit_list, audit),
    )
    return tuple(replace(tool, function=function, context_parameter="context") for tool, function in pairs)


async def run(
    url: str, session: str | None, tools: tuple[Tool, ...], token: str | None, attached: bool = False
) -> None:
    """Answer calls until a stop signal; one that is attached ends with its stdin, too."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    if attached:
        loop.add_reader(sys.stdin, lambda: (loop.remove_reader(sys.stdin), task.cancel()))
    with suppress(asyncio.CancelledError):
        if session is not None:
            await RemoteExecutor(url, session, tools, token).run()
        else:
            await RemoteExecutorPool(url, APP, tools, token).run()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", default="http://127.0.0.1:8765", show_default=True, help="The server.")
@click.option("--session", help="One session; all of the application if not given.")
@click.option("--db", type=click.Path(path_type=Path), default="weights.db", show_default=True)
@click.option("--attached", is_flag=True, help="End when stdin does, and so with who started it.")
def main(url: str, session: str | None, db: Path, attached: bool) -> None:
    """Run the tools of the weigh-ins on the table in a file."""
    level = logging.ERROR if attached else logging.WARNING  # who ends with the server need not say it is gone
    logging.basicConfig(level=level, format="%(message)s")
    tools, token = make_tools(WeightTable(db)), os.environ.get("TURNLOG_TOKEN")
    try:
        asyncio.run(run(url, session, tools, token, attached))
    except TurnlogError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m turnlog_examples.weights.executor")
