"""`turnlog search` and `turnlog stats`: what is said in a log, and how much of what there is."""

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
from turnlog.events import CATALOG, AgentUsage, decode_envelope
from turnlog.log import Damage, Log, Row, SessionRecord, envelope_json
from turnlog.log.filter import EventFilter

MAX_LISTED_TYPES = 12  # of the types of events, in the list for people


@click.command(
    short_help="Print the events that have a text in them.",
    epilog="Example: turnlog search 'credit check' --type assistant",
)
@click.argument("text")
@click.argument("names", metavar="[SESSION]...", nargs=-1)
@log_option
@click.option("--type", "types", multiple=True, help="Only this type; `tool` means all of tool.*.")
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
    """Print the events that have TEXT in them, whatever its case: of the sessions that are named, or of all.

    Looks at what `turnlog tail` prints of an event, whole; live pieces are left out, since the whole text
    follows them. Exits with 1 if there is none.
    """
    found = run_command(print_matches(log_url, names, text.casefold(), EventFilter(types), as_json=as_json))
    if not found:
        click.echo("No event has this text.", err=True)
        context.exit(1)


async def print_matches(
    log_url: str, names: Sequence[str], text: str, event_filter: EventFilter, *, as_json: bool
) -> int:
    """Print what has a text, as it is found; how many events that were."""
    found = 0
    screen, output = make_console(), sys.stdout.buffer
    async with open_cli_log(log_url) as log:
        for head in await find_records(log, names):
            before = found
            async for row in read_undamaged_rows(log, head):
                if row.live or not event_filter.matches(row) or text not in describe_row(row).casefold():
                    continue
                if as_json:
                    write_json(output, envelope_json(row))
                else:
                    if found == before:
                        screen.print(session_heading(head), soft_wrap=True)
                    screen.print(format_row(row), soft_wrap=True)
                found += 1
    return found


def session_heading(record: SessionRecord) -> Text:
    """The line above the events of a session."""
    return Text(record.session_id, "bold").append(escape_controls(f"  {record.app}  {record.title}"), "dim")


def describe_row(row: Row) -> str:
    """An event in words, whole."""
    return describe_payload(CATALOG.decode_payload(decode_envelope(envelope_json(row))))


async def read_undamaged_rows(log: Log, record: SessionRecord) -> AsyncIterator[Row]:
    """The rows of a session; a part that is damaged is named on stderr and passed over."""
    after = record.first - 1
    while True:
        try:
            page = await log.read(record.session_id, after)
        except SessionDamaged as fault:
            lost = Damage(fault.session_id, fault.first, fault.last, fault.problem)
            click.echo(format_damage(lost), err=True)
            after = fault.last
            continue
        if not page:
            return
        for row in page:
            yield row
        after = page.last


class ModelUsage(msgspec.Struct):
    """What the models of one name used."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: dict[str, float] = {}


class Statistics(msgspec.Struct):
    """How much of what there is, as `turnlog stats --json` prints it."""

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
    """Count sessions, events by type, blobs, tokens and costs: of the sessions that are named, or of all."""
    counts = run_command(count_log(log_url, names))
    if as_json:
        write_json(sys.stdout.buffer, msgspec.json.encode(counts))
        return
    screen = make_console()
    for name, value in format_statistics(counts):
        screen.print(Text(f"{name:<20}", "bold").append(escape_controls(value)), soft_wrap=True)


async def count_log(log_url: str, names: Sequence[str]) -> Statistics:
    """Count what there is in a log."""
    counts, types, models = Statistics(), Counter[str](), dict[str, ModelUsage]()
    async with open_cli_log(log_url) as log:
        heads = await find_records(log, names)
        for head in heads:
            counts.blobs += len(await log.blob_names(head.session_id))
            async for row in read_undamaged_rows(log, head):
                types[row.type] += 1
                counts.live += row.live
                if row.type == "agent.usage":
                    add_usage(models, CATALOG.decode_payload(decode_envelope(envelope_json(row))))
    counts.sessions, counts.closed = len(heads), sum(head.closed for head in heads)
    counts.apps = dict(Counter(head.app for head in heads).most_common())
    counts.events, counts.types, counts.models = types.total(), dict(types.most_common()), models
    return counts


def add_usage(models: dict[str, ModelUsage], payload: Any) -> None:
    """Add one completion to what its model used."""
    if not isinstance(payload, AgentUsage):  # of a vocabulary that this package does not read
        return
    used = models.setdefault(payload.model, ModelUsage())
    used.input_tokens += payload.usage.input_tokens
    used.output_tokens += payload.usage.output_tokens
    if payload.cost:
        before = used.cost.get(payload.cost.currency, 0.0)
        used.cost[payload.cost.currency] = before + payload.cost.total_cost


def format_statistics(counts: Statistics) -> list[tuple[str, str]]:
    """The counts for people: a name and a value each."""
    lines = [
        ("sessions", f"{counts.sessions}, {counts.closed} closed"),
        *[(f"  {app or 'of no application'}", str(number)) for app, number in counts.apps.items()],
        ("events", f"{counts.events}, {counts.live} of them live pieces"),
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
