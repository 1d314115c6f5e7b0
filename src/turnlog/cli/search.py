"""`turnlog search` finds events by text, `turnlog stats` counts events, tokens and costs."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import click
import msgspec
from rich.text import Text

from turnlog.cli.describe import describe_payload
from turnlog.cli.log import log_option
from turnlog.cli.log_access import find_records, format_damage, open_cli_log, run_command
from turnlog.cli.tail import format_row
from turnlog.cli.terminal import escape_controls, format_count, make_console, write_json
from turnlog.errors import SessionDamaged
from turnlog.events import AgentUsage, decode_envelope
from turnlog.log import Damage, Log, Row, SessionRecord, envelope_json
from turnlog.log.filter import EventFilter
from turnlog.vocabularies import FULL_CATALOG

MAX_LISTED_TYPES = 12  # event types in the text output; the others are summed up


@click.command(
    short_help="Print the events that contain a text.",
    epilog="Example: turnlog search 'credit check' --type assistant",
)
@click.argument("text")
@click.argument("names", metavar="[SESSION]...", nargs=-1)
@log_option
@click.option("--type", "types", multiple=True, help="Search only this type; `tool` means all of tool.*.")
@click.option("--json", "as_json", is_flag=True, help="Print the events as they are stored.")
@click.pass_context
def search(
    context: click.Context,
    text: str,
    names: tuple[str, ...],
    log_url: str,
    types: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the events that contain TEXT, in any case, of all sessions or of each SESSION.

    It searches the text that `turnlog tail` prints, uncut. Live events are left out: the event with their
    whole text follows. The exit code is 1 if no event matches.
    """
    count = run_command(print_matches(log_url, names, text.casefold(), EventFilter(types), as_json=as_json))
    if not count:
        click.echo("No event contains this text.", err=True)
        context.exit(1)


async def print_matches(
    log_url: str, names: Sequence[str], text: str, event_filter: EventFilter, *, as_json: bool
) -> int:
    count = 0
    console = make_console()
    output = sys.stdout.buffer
    async with open_cli_log(log_url) as log:
        for record in await find_records(log, names):
            has_heading = False
            async for row in read_undamaged_rows(log, record):
                if row.live or not event_filter.matches(row) or text not in describe_row(row).casefold():
                    continue
                count += 1
                if as_json:
                    write_json(output, envelope_json(row))
                    continue

                if not has_heading:
                    console.print(session_heading(record), soft_wrap=True)
                    has_heading = True
                console.print(format_row(row), soft_wrap=True)
    return count


def session_heading(record: SessionRecord) -> Text:
    return Text(record.session_id, "bold").append(escape_controls(f"  {record.app}  {record.title}"), "dim")


def describe_row(row: Row) -> str:
    return describe_payload(FULL_CATALOG.decode_payload(decode_envelope(envelope_json(row))))


async def read_undamaged_rows(log: Log, record: SessionRecord) -> AsyncIterator[Row]:
    """Yield the rows of a session. Damaged parts are reported on stderr and skipped."""
    after = record.first - 1
    while True:
        try:
            page = await log.read(record.session_id, after)
        except SessionDamaged as error:
            damage = Damage(error.session_id, error.first, error.last, error.problem)
            click.echo(format_damage(damage), err=True)
            after = error.last
            continue
        if not page:
            return
        for row in page:
            yield row
        after = page.last


class ModelUsage(msgspec.Struct):
    """The usage of one model."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: dict[str, float] = {}


class Statistics(msgspec.Struct):
    """Counts of a log, as `turnlog stats --json` prints them."""

    sessions: int = 0
    closed: int = 0
    apps: dict[str, int] = {}
    events: int = 0
    live: int = 0
    types: dict[str, int] = {}
    blobs: int = 0
    models: dict[str, ModelUsage] = {}


@click.command(short_help="Count sessions, events, tokens and costs.", epilog="Example: turnlog stats --json")
@click.argument("names", metavar="[SESSION]...", nargs=-1)
@log_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def stats(names: tuple[str, ...], log_url: str, as_json: bool) -> None:
    """Count sessions, events by type, blobs, tokens and costs, of all sessions or of each SESSION."""
    counts = run_command(count_log(log_url, names))
    if as_json:
        write_json(sys.stdout.buffer, msgspec.json.encode(counts))
        return
    console = make_console()
    for name, value in format_statistics(counts):
        console.print(Text(f"{name:<20}", "bold").append(escape_controls(value)), soft_wrap=True)


async def count_log(log_url: str, names: Sequence[str]) -> Statistics:
    counts = Statistics()
    types: Counter[str] = Counter()
    models: dict[str, ModelUsage] = {}
    async with open_cli_log(log_url) as log:
        records = await find_records(log, names)
        for record in records:
            counts.blobs += len(await log.blob_names(record.session_id))
            async for row in read_undamaged_rows(log, record):
                types[row.type] += 1
                counts.live += row.live
                if row.type == AgentUsage.TYPE:
                    add_usage(models, FULL_CATALOG.decode_payload(decode_envelope(envelope_json(row))))

    counts.sessions = len(records)
    counts.closed = sum(record.closed for record in records)
    counts.apps = dict(Counter(record.app for record in records).most_common())
    counts.events = types.total()
    counts.types = dict(types.most_common())
    counts.models = models
    return counts


def add_usage(models: dict[str, ModelUsage], payload: Any) -> None:
    if not isinstance(payload, AgentUsage):  # written by another version, and not decoded
        return
    used = models.setdefault(payload.model, ModelUsage())
    used.input_tokens += payload.usage.input_tokens
    used.output_tokens += payload.usage.output_tokens
    if payload.cost:
        before = used.cost.get(payload.cost.currency, 0.0)
        used.cost[payload.cost.currency] = before + payload.cost.total_cost


def format_statistics(counts: Statistics) -> list[tuple[str, str]]:
    lines = [
        ("sessions", f"{counts.sessions}, {counts.closed} closed"),
        *[(f"  {app or 'no application'}", str(number)) for app, number in counts.apps.items()],
        ("events", f"{counts.events}, {counts.live} of them live"),
    ]
    types = list(counts.types.items())
    lines += [(f"  {name}", str(number)) for name, number in types[:MAX_LISTED_TYPES]]
    if len(types) > MAX_LISTED_TYPES:
        rest = sum(number for _, number in types[MAX_LISTED_TYPES:])
        lines.append(("  others", f"{rest} of {format_count(len(types) - MAX_LISTED_TYPES, 'type')}"))
    lines.append(("blobs", str(counts.blobs)))
    for model, used in counts.models.items():
        cost = "".join(f", {total:.4f} {currency}" for currency, total in used.cost.items())
        lines.append((model, f"tokens {used.input_tokens} in, {used.output_tokens} out{cost}"))
    return lines


COMMANDS = (search, stats)
