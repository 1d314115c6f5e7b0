"""The printers of events, alone and in `turnlog chat`: what they print, whole, and what they leave out."""

import asyncio
import io
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

from rich.console import Console

from tests.support.limits import HANG_S
from tests.support.tables import for_each_row
from turnlog import Agent, tool
from turnlog.agents import Scripted, ScriptTurn, ToolUse, all_ended
from turnlog.agents.models import Cite, Fail, ScriptPart, Thinking
from turnlog.agents.retry import RetryPolicy
from turnlog.cli.event_printers import AnswerPrinter, EventPrinter, TreePrinter
from turnlog.cli.log_access import INTERRUPT_EXIT_CODE
from turnlog.events import Citation, Entry

TOP = """\
Planner  I send a researcher for each of these: honey, the Moon.
Planner  The findings are here. The writer takes over.
Writer  # On honey and the Moon

- Honey that is kept dry does not spoil for centuries.
- The Moon moves away from the Earth, some four centimetres a year.
- You may have read this: The far side of the Moon is always dark. The Sun shines on it half of the time.

Of 3 claims, 2 held.
"""
ALL = """\
Planner ◂ honey
Planner │ I send a researcher for each of these: honey.
  Researcher ◂ honey
  Researcher · searching 6 shelves
  Researcher → search(subject=honey) → ["Honey that is kept dry does not spoil for centuries."]
  Researcher │ 1 to check.
    Fact checker ◂ Honey that is kept dry does not spoil for centuries.
    Fact checker → look_up(claim=Honey that is kept dry does not spoil for centuries.) → true
    Fact checker │ Confirmed: Honey that is kept dry does not spoil for centuries.
    Fact checker ■ end_turn
  Researcher │ Confirmed: Honey that is kept dry does not spoil for centuries.
  Researcher ■ end_turn
Planner │ The findings are here. The writer takes over.
Planner ⇢ hands over to Writer
Planner ■ handoff
Writer ◂ honey Confirmed: Honey that is kept dry does not spoil for centuries.
Writer │ # On honey

  - Honey that is kept dry does not spoil for centuries.

  Of 1 claims, 1 held.
Writer ■ end_turn
"""
BRIEFED = """\
Assistant ◂ Göreme
Assistant … A flight, then.
Assistant ↶ overloaded_error: begins again
Assistant … A launch at Göreme: the rules, then wind, sky, field and tower.
Assistant │ Before a flight I look at the rules.
"""
ANSWERED = """\
Assistant → confirm(question=Shall I write the flight plan for Göreme?) → true
Assistant … The calmest hour is 08:00.
Assistant → code_execution(code=write('flight-plan.txt', 'Launch at Göreme, 08:00.')) → \
{"type":"code_execution_result","stdout":"Launch at Göreme, 08:00.\\n"…
Assistant │ The plan is written: launch at 08:00, when it is calmest.
  [flight-plan.txt: Launch at Göreme, 08:00.]
Assistant → files: flight-plan.txt
"""


def command(name: str, *arguments: str) -> list[str]:
    chat = ("-c", "import turnlog.cli; turnlog.cli.main()", "chat", f"turnlog_examples.{name}:app")
    return [sys.executable, *chat, *arguments]


def run(name: str, *arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(name, *arguments),
        capture_output=True,
        text=True,
        input=answer,
        encoding="utf-8",
        timeout=HANG_S,
    )


def test_the_simple_client_shows_what_the_top_of_the_tree_says() -> None:
    ran = run("pipeline", "honey and the Moon")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, TOP, "")


def test_the_other_client_shows_every_level_as_it_happens() -> None:
    ran = run("pipeline", "honey", "--all")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, ALL, "")


def test_agents_of_one_name_are_numbered() -> None:
    lines = run("pipeline", "honey, ghosts and bees", "--all").stdout.split("\n")
    began = [line for line in lines if "Researcher" in line and "◂" in line]
    assert began == ["  Researcher ◂ honey", "  Researcher 2 ◂ ghosts", "  Researcher 3 ◂ bees"]
    assert "  Researcher 2 │ Nothing about ghosts." in lines


@for_each_row("arguments", [[], ["--all"]])
def test_a_reader_who_leaves_ends_it_without_a_word(arguments: list[str]) -> None:
    process = subprocess.Popen(
        command("pipeline", "honey and the Moon", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert process.stderr
    process.stdout.read(3)
    process.stdout.close()
    assert process.wait(HANG_S) == 1
    assert process.stderr.read() == b""
    process.stderr.close()


def test_an_interrupt_ends_it_without_a_word() -> None:
    process = subprocess.Popen(
        command("pipeline", "honey and the Moon"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.read(3) == "Pla"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=HANG_S)
    assert (process.returncode, error) == (INTERRUPT_EXIT_CODE, "")


def on_a_terminal(*arguments: str) -> str:
    """What a command writes to a terminal of 60 columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "60"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(arguments, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        pieces = []
        with open(ours, "rb", buffering=0) as output:
            while True:
                try:
                    piece = output.read(4096)
                except OSError:  # how Linux says that the other side is closed
                    break
                if not piece:
                    break
                pieces.append(piece)
        assert process.wait(HANG_S) == 0
    return b"".join(pieces).decode()


def test_colours_are_for_terminals() -> None:
    text = on_a_terminal(*command("pipeline", "honey and bees", "--all"))
    assert "\x1b[1;36mPlanner\x1b[0m" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert all(len(line.rstrip("\r")) <= 60 for line in plain.split("\n"))
    assert "\x1b" not in run("pipeline", "honey and bees", "--all").stdout


@for_each_row("arguments", [[], ["--all"]])
def test_a_topic_cannot_control_the_terminal(arguments: list[str]) -> None:
    said = run("pipeline", "a\x1b[2Jb\u202ec", *arguments).stdout
    assert "\x1b" not in said
    assert "\\x1b[2Jb\\u202ec" in said


def test_the_assistant_asks_and_goes_on_with_the_answer() -> None:
    ran = run("assistant", "Göreme", "--all", answer="y\n")
    assert (ran.returncode, ran.stderr) == (0, "")
    before, asked, after = ran.stdout.partition("Shall I write the flight plan for Göreme?: ")
    assert asked
    assert before.startswith(BRIEFED)
    assert "  Tower │ Göreme tower: free to launch until noon.\n" in before
    assert after.startswith(ANSWERED)
    assert re.fullmatch(r"Assistant ■ end_turn, \d+\+360 tokens, \$0\.\d{4}\n", after.removeprefix(ANSWERED))


def test_the_assistant_takes_no_for_an_answer_and_goes_without_one() -> None:
    no = run("assistant", "Göreme", "--all", answer="n\n")
    assert "Assistant │ As you like. The balloon stays in its bag.\n" in no.stdout
    nobody = run("assistant", "Göreme", "--all")
    assert (nobody.returncode, nobody.stderr.strip()) == (1, "Aborted!")
    windy = run("assistant", "Can we fly from Bristol?", "--all")
    assert (windy.returncode, "no flight today" in windy.stdout) == (0, True)


def test_what_fails_is_a_line_and_its_stack_trace_goes_to_stderr() -> None:
    ran = run("assistant", "Oslo", "--all", answer="n\n")
    assert "Traceback" in ran.stderr
    assert "Traceback" not in ran.stdout
    assert "Assistant ✗ register(place=Oslo) → EXECUTION_ERROR, register failed\n" in ran.stdout
    assert "  Tower ✗ not_found_error: There is no tower at Oslo.\n  Tower ■ error\n" in ran.stdout


@tool(executor="frontend")
def choose(colour: str) -> str:
    """Choose a colour."""
    raise NotImplementedError


async def print_events(
    events: AsyncGenerator[Entry, None], printer: EventPrinter
) -> AsyncGenerator[Entry, None]:
    """Yield the same events; each is printed first."""
    async with aclosing(events):
        async for entry in events:
            printer.print_event(entry)
            yield entry


Make = Callable[[Console], EventPrinter]


def show(make: Make, *attempts: list[ScriptPart]) -> str:
    """What a client shows of an agent whose model makes these attempts, one after the other."""
    left = iter(attempts)

    def script(_: ScriptTurn) -> Iterator[ScriptPart]:
        yield from next(left)

    output = io.StringIO()
    agent = Agent(
        "Ann",
        "",
        Scripted(script),
        tools=(choose,),
        retry=RetryPolicy(max_attempts=len(attempts), initial_delay_s=0.0),
    )
    client = make(Console(file=output, width=80, highlight=False))

    async def follow() -> None:
        async for _ in print_events(agent.run("hi"), client):
            pass

    asyncio.run(follow())
    return output.getvalue()


def test_what_is_taken_back_is_said_to_be() -> None:
    attempts: list[list[ScriptPart]] = [["Once ", Fail()], ["Twice."]]
    assert show(AnswerPrinter, *attempts) == (
        "Ann  Once …\n(overloaded_error: that does not count, once more)\nAnn  Twice.\n"
    )
    assert show(TreePrinter, *attempts) == (
        "Ann ◂ hi\nAnn ↶ overloaded_error: begins again\nAnn │ Twice.\nAnn ■ end_turn\n"
    )


def test_a_model_that_gives_up_is_shown_with_what_it_said() -> None:
    attempt: list[ScriptPart] = ["Well, ", Fail("billing_error", retriable=False, message="Nobody pays.")]
    assert show(AnswerPrinter, attempt) == "Ann  Well, …\nNobody pays.\n"
    assert show(TreePrinter, attempt) == "Ann ◂ hi\nAnn ✗ billing_error: Nobody pays.\nAnn ■ error\n"


def test_thinking_is_for_those_who_want_everything() -> None:
    source = Citation(type="char_location", cited_text="A.", document_title="Book")
    attempt: list[ScriptPart] = [Thinking("Hm."), "So.", Cite(source)]
    assert show(AnswerPrinter, attempt) == "Ann  So.\n"
    assert show(TreePrinter, attempt) == "Ann ◂ hi\nAnn … Hm.\nAnn │ So.\n  [Book: A.]\nAnn ■ end_turn\n"


def test_a_question_to_the_page_is_the_last_line() -> None:
    attempt: list[ScriptPart] = [ToolUse("choose", {"colour": "red or\nblue"})]
    assert show(AnswerPrinter, attempt) == "?  choose(colour=red or blue)\n"
    assert show(TreePrinter, attempt) == "Ann ◂ hi\nAnn ? choose(colour=red or blue)\n"


def test_who_shows_the_top_only_can_still_wait_for_its_end() -> None:
    def boss(turn: ScriptTurn) -> Iterator[ScriptPart]:
        yield "Done." if turn.results else ToolUse("clerk", {"prompt": "go"})

    clerk = Agent("Clerk", "", Scripted(lambda _: ["Secret."]))
    agent = Agent("Boss", "", Scripted(boss), agents=(clerk,))
    output = io.StringIO()
    ends = asyncio.run(all_ended(print_events(agent.run("hi", depth=0), AnswerPrinter(Console(file=output)))))
    assert (len(ends), output.getvalue()) == (1, "Boss  Done.\n")
