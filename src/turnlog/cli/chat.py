"""`turnlog chat`: a conversation with an application in the terminal, without a server.

The command opens a session of the application and sends it each line that the person types. It prints the
events of the turn until the turn is over or waits, and then asks the person what the agents wait for.
"""

import json
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import click

import turnlog
from turnlog.cli.event_printers import AnswerPrinter, EventPrinter, TreePrinter
from turnlog.cli.log_access import LOG_OPTION, open_cli_log, run_command
from turnlog.cli.serve import load_app
from turnlog.cli.terminal import escape_controls
from turnlog.events import ApprovalRequest, Entry, ToolAwait, UiMessage, decode_envelope
from turnlog.ids import new_id
from turnlog.log import Log, envelope_json
from turnlog.state.tree import Tree

YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False}


@click.command(
    "chat",
    short_help="Talk to an application in the terminal.",
    epilog='Example: turnlog chat turnlog_examples.tour:app "Oslo"',
)
@click.argument("app_name", metavar="MODULE:APP")
@click.argument("message", required=False)
@click.option("--log", "log_url", **{**LOG_OPTION, "default": "memory:"})
@click.option("--all", "show_all", is_flag=True, help="Print what agents of every level do, a line each.")
def chat_command(app_name: str, message: str | None, log_url: str, show_all: bool) -> None:
    """Talk to the application MODULE:APP in the terminal; no server runs.

    With MESSAGE the command sends it, prints the turn and ends. Without, it reads lines until the end of
    input (Ctrl+D). An answer to a question is yes, no, JSON or text.
    """
    printer = TreePrinter() if show_all else AnswerPrinter()
    run_command(hold_conversation(load_app(app_name), log_url, message, printer))


async def hold_conversation(
    app: "turnlog.App", log_url: str, message: str | None, printer: EventPrinter
) -> None:
    from turnlog.app import (  # loads the agents' runtime: other commands start without it
        LOCAL,
        ClientEvent,
        Sessions,
    )

    async with open_cli_log(log_url, writable=True) as log:
        sessions = Sessions(log, [app], os.getpid())
        try:
            membership = await sessions.create(LOCAL, app.name)
            conversation = TerminalConversation(app, log, membership.session_id)
            text = message or prompt_message()
            while text:
                sent = await sessions.send(membership, UiMessage(text=text))
                last_seq = sent.seq
                while questions := await conversation.print_turn(sent.turn, last_seq, printer):
                    answers = [
                        ClientEvent(*answer, new_id("evt_"))
                        for question in questions
                        for answer in ask_person(question)
                    ]
                    last_seq = (await sessions.post(membership, answers))[-1]
                text = None if message else prompt_message()
        finally:
            await sessions.close()


Question = ToolAwait | ApprovalRequest


class TerminalConversation:
    """The events of one session, read once and in order."""

    def __init__(self, app: "turnlog.App", log: Log, session_id: str) -> None:
        self._catalog = app.catalog
        self._log = log
        self._session_id = session_id
        self._tree = Tree()

    async def print_turn(self, turn: str, last_seq: int, printer: EventPrinter) -> list[Question]:
        """Print events until the turn is over or waits. Return the questions that wait for an answer.

        Events up to `last_seq` were sent before the call: until then the turn is not settled.
        """
        questions: list[Question] = []
        async with aclosing(self._follow()) as entries:
            async for entry in entries:
                printer.print_event(entry)
                if isinstance(entry.payload, Question):
                    questions.append(entry.payload)
                if self._tree.last_seq >= last_seq and self._tree.is_settled(turn):
                    break
        is_over = not any(agent.scope.trace_id == turn for agent in self._tree.open.values())
        return [] if is_over else questions

    async def _follow(self) -> AsyncGenerator[Entry, None]:
        async with aclosing(self._log.follow(self._session_id, self._tree.last_seq, replay_from=-1)) as pages:
            async for page in pages:
                for row in page or ():
                    envelope = decode_envelope(envelope_json(row))
                    entry = self._catalog.decode_entry(envelope)
                    self._tree.apply(envelope, entry.payload)
                    yield entry


def prompt_message() -> str | None:
    """Read the next line of the person; None at the end of input."""
    try:
        return click.prompt("you", prompt_suffix="> ", default="", show_default=False).strip() or None
    except click.Abort:
        click.echo()
        return None


def ask_person(question: Question) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(question, ApprovalRequest):
        tool, risk = escape_controls(question.tool), escape_controls(question.risk)
        decision = "approve" if click.confirm(f"{tool} ({risk}): run it?") else "deny"
        yield (
            "approval.decision",
            {"call_id": question.call_id, "args_hash": question.args_hash, "decision": decision},
        )
        return
    for call in question.calls:
        text = str(call.args.get("question", call.tool))
        result = read_answer(click.prompt(escape_controls(text)))
        yield "tool.result", {"call_id": call.call_id, "tool": call.tool, "ok": True, "result": result}


def read_answer(text: str) -> Any:
    if text.lower() in YES_OR_NO:
        return YES_OR_NO[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


COMMANDS = (chat_command,)
