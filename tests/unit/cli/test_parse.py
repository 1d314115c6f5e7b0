"""`turnlog parse`: a filter from what a model sent to a log that can be imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.claude_vectors import VECTORS as CLI_VECTORS
from tests.support.claude_vectors import bytes_of
from tests.support.coverage_pause import without_coverage
from tests.unit.cli.harness import Place, error
from turnlog.cli.parse import READ_BYTES, split_json_lines
from turnlog.errors import BadInput
from turnlog.events import CATALOG, decode_envelope
from turnlog.state.tree import Tree
from turnlog.wire.sse import MAX_SSE_MESSAGE_BYTES

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "parse" / "messages_api.json").read_text())[
    "vectors"
]
EVENTS: dict[str, list[Any]] = {vector["id"]: vector["events"] for vector in VECTORS}
TEXT = 'Noted. <agent-event type="note_trip" data=\'{"city": "Oslo", "weather": "rain"}\' /> Bye. '
TURNLOG = str(Path(sys.executable).parent / "turnlog")


def sse(*names: str) -> bytes:
    events = [event for name in names for event in EVENTS[name]]
    return b"".join(b"event: x\ndata: %b\n\n" % json.dumps(event).encode() for event in events)


def lines(*names: str) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for name in names for event in EVENTS[name])


def told(result: Result) -> list[dict[str, Any]]:
    """The events of an output, after its session."""
    session, *events = [json.loads(line) for line in result.stdout_bytes.split(b"\n") if line]
    assert session["type"] == "session"
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert {event["session_id"] for event in events} == {session["session_id"]}
    assert len({event["id"] for event in events}) == len(events)
    return events


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events if event["type"] not in ("block.start", "block.delta")]


def assert_closed(result: Result) -> None:
    """Nothing is left open."""
    tree, last = Tree(), tuple[Any, ...]()
    for line in result.stdout_bytes.split(b"\n")[1:-1]:
        envelope = decode_envelope(line)
        tree.apply(envelope, CATALOG.decode_payload(envelope))
        for invocation in tree.open.values():
            last = invocation.blocks, invocation.calls
    assert not tree.open
    assert not any(last)


def test_text_with_tags_becomes_a_turn(place: Place) -> None:
    result = place.run("parse", "--source", "tags", input=TEXT.encode())
    events = told(result)
    assert result.exit_code == 0
    assert types(events) == ["agent.start", "block.end", "assistant.message", "app.note_trip", "agent.end"]
    assert events[-1]["payload"] == {"stop_reason": "end_turn", "steps": 1, "result": "Noted. Bye. "}
    assert_closed(result)


def test_with_an_application_its_own_tags_are_events_and_others_are_not(place: Place) -> None:
    text = TEXT + '<agent-event type="close_case" />'
    result = place.run("parse", "--source", "tags", "--app", "turnlog_examples.tour:app", input=text.encode())
    assert types(told(result))[2:5] == ["assistant.message", "tour.note_trip", "parse.reject"]
    assert json.loads(result.stdout_bytes.split(b"\n")[0])["app"] == "tour"


@pytest.mark.parametrize("form", [sse, lines])
def test_the_messages_stream_comes_as_sse_or_as_lines(place: Place, form: Any) -> None:
    result = place.run("parse", "--source", "anthropic", input=form("a text"))
    events = told(result)
    assert result.exit_code == 0
    wanted = ["agent.start", "block.end", "assistant.message", "agent.usage", "agent.end"]
    assert types(events) == wanted
    assert events[0]["payload"] == {"name": "Assistant", "via": "prompt", "model": "claude-sonnet-4-5"}
    assert events[-1]["payload"]["usage"] == {"input_tokens": 10, "output_tokens": 20}
    assert_closed(result)


def is_one_message(vector: dict[str, Any]) -> bool:
    """Whether a stream is, from its first event on, what it seems."""
    kinds = [event.get("type") if isinstance(event, dict) else None for event in vector["events"]]
    return None not in kinds[:1] and kinds.count("message_start") <= 1


@without_coverage()
@pytest.mark.parametrize(
    "vector", [vector for vector in VECTORS if is_one_message(vector)], ids=lambda vector: vector["id"]
)
def test_every_stream_becomes_a_log_that_is_closed_and_can_be_imported(
    place: Place, vector: dict[str, Any]
) -> None:
    result = place.run("parse", "--source", "anthropic", input=lines(vector["id"]))
    ended = vector["reply"]["complete"] or any(event.get("type") == "error" for event in vector["events"])
    assert result.exit_code == (0 if ended else 1)
    if vector["events"]:
        told(result)
        assert_closed(result)
        assert place.run("import", input=result.stdout_bytes).exit_code == 0
        assert place.run("verify").exit_code == 0


def test_a_message_with_calls_is_a_step_and_the_next_goes_on_with_its_agent(place: Place) -> None:
    result = place.run("parse", "--source", "anthropic", input=sse("a call", "a text", "a text"))
    events = told(result)
    first, second = [event for event in events if event["type"] == "agent.end"]
    assert (first["payload"]["steps"], second["payload"]["steps"]) == (2, 1)
    assert first["payload"]["usage"] == {"input_tokens": 20, "output_tokens": 40}
    assert len({event["agent_id"] for event in events}) == len({event["trace_id"] for event in events}) == 2
    answer = next(event for event in events if event["type"] == "tool.result")
    assert answer["payload"]["error"]["code"] == "CANCELLED"
    assert answer["origin"] == "system"
    assert types(events)[4:7] == ["tool.call", "agent.usage", "tool.result"]


def test_a_search_that_paused_is_answered_by_the_next_message(place: Place) -> None:
    names = ["a turn that pauses in the middle of a search", "a result whose call was in another message"]
    result = place.run("parse", "--source", "anthropic", input=lines(*names))
    answers = [event for event in told(result) if event["type"] == "tool.result"]
    assert [(event["payload"]["ok"], event["origin"]) for event in answers] == [(True, "model")]
    assert_closed(result)


def test_calls_at_the_end_of_the_input_end_as_cancelled(place: Place) -> None:
    result = place.run("parse", "--source", "anthropic", input=lines("a call"))
    assert (result.exit_code, told(result)[-1]["payload"]["stop_reason"]) == (0, "cancelled")
    assert_closed(result)


def test_a_stream_that_is_cut_is_closed_and_fails(place: Place) -> None:
    whole = sse("a text")
    for at in range(len(whole) // 2, len(whole) - 2, 7):
        result = place.run("parse", "--source", "anthropic", input=whole[:at])
        assert error(result) == "The stream ended before the message did."
        assert told(result)[-1]["payload"]["stop_reason"] == "error"
        assert_closed(result)


def test_the_sign_of_a_gateway_that_the_stream_is_over_is_left_out(place: Place) -> None:
    result = place.run("parse", "--source", "anthropic", input=sse("a text") + b"data: [DONE]\n\n")
    assert (result.exit_code, types(told(result))[-1]) == (0, "agent.end")


def test_parse_of_a_message_that_ended_with_an_error_converts_it_and_succeeds(place: Place) -> None:
    result = place.run("parse", "--source", "anthropic", input=lines("an error in the middle of a text"))
    assert (result.exit_code, result.stderr) == (0, "")
    assert types(told(result))[-4:] == ["block.end", "agent.usage", "session.error", "agent.end"]


def test_a_message_may_begin_while_another_is_open(place: Place) -> None:
    result = place.run("parse", "--source", "anthropic", input=lines("no message_stop", "a text"))
    ends = [event["payload"]["stop_reason"] for event in told(result) if event["type"] == "agent.end"]
    assert (result.exit_code, ends) == (1, ["error", "end_turn"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "expected the events of a message, got none (at input)"),
        (b" \n \n", "expected the events of a message, got none (at input)"),
        (b'data: {"type":"ping"}\n\n', "expected the events of a message, got none (at input)"),
        (b"Hello", "expected the events of a message, got none (at input)"),
        (b'{"type":', "event 1: expected JSON"),
        (b'{"type":"ping"}\n{"a":1,"a":2}\n', "event 2: expected each key once"),
        (b"data: nonsense\n\n", "event 1: expected JSON"),
        (b"[" * 100, "event 1: expected"),
    ],
)
def test_what_is_no_stream_is_said_in_one_line(place: Place, text: bytes, problem: str) -> None:
    result = place.run("parse", "--source", "anthropic", input=text)
    assert error(result).startswith(problem)
    assert result.stdout_bytes == b""


def test_what_is_wrong_in_the_middle_closes_what_was_there(place: Place) -> None:
    text = lines("a stream that ends in a text") + b"{nonsense\n"
    result = place.run("parse", "--source", "anthropic", input=text)
    assert error(result).startswith("event 4: expected JSON")
    assert_closed(result)


def test_a_line_is_not_endless() -> None:
    with pytest.raises(BadInput, match="expected a line of at most"):
        list(split_json_lines([b"x" * (1 << 20)] * 17))
    assert MAX_SSE_MESSAGE_BYTES == 16 << 20
    assert list(split_json_lines([b'{"a"', b":1}\r\n\n {", b"}"])) == [b'{"a":1}', b"{}"]


def test_a_long_run_of_blank_input_is_passed_over(place: Place) -> None:
    text = b"\n" * (3 * READ_BYTES) + sse("a text")
    assert place.run("parse", "--source", "anthropic", input=text).exit_code == 0


@pytest.mark.parametrize("vector", CLI_VECTORS, ids=lambda vector: vector["id"])
def test_the_stdout_of_a_process_becomes_a_log_that_is_closed_and_can_be_imported(
    place: Place, vector: dict[str, Any]
) -> None:
    result = place.run("parse", "--source", "claude-cli", input=bytes_of(vector["lines"]))
    events = told(result)
    errors = [event["payload"] for event in events if event["type"] == "session.error"]
    failed = any(error["code"] == "process_exited" for error in errors)
    assert result.exit_code == int(failed)
    assert_closed(result)
    if failed:
        assert error(result)
    assert place.run("import", input=result.stdout_bytes).exit_code == 0
    assert place.run("verify").exit_code == 0


def test_texts_of_a_process_have_markers_and_tags(place: Place) -> None:
    text = f'{TEXT}[AGENT_STATUS] {{"agents": []}}'
    message = {"id": "msg_1", "content": [{"type": "text", "text": text}]}
    line = json.dumps({"type": "assistant", "message": message}).encode()
    result = place.run("parse", "--source", "claude-cli", input=line)
    assert types(told(result))[2:5] == ["assistant.message", "app.note_trip", "roster.status"]
    arguments = ("--source", "claude-cli", "--app", "turnlog_examples.tour:app")
    result = place.run("parse", *arguments, input=line)
    assert types(told(result))[2:5] == ["assistant.message", "tour.note_trip", "roster.status"]


def test_a_process_that_printed_nothing_leaves_nothing(place: Place) -> None:
    result = place.run("parse", "--source", "claude-cli", input=b"")
    assert (result.exit_code, result.stdout_bytes) == (0, b"")


def test_the_same_input_in_the_same_session_gives_the_same_events(place: Place) -> None:
    outputs = [
        told(place.run("parse", "--source", "tags", "--session", "sess_1", input=TEXT.encode()))
        for _ in range(2)
    ]
    for events in outputs:
        for event in events:
            del event["ts"]
    assert outputs[0] == outputs[1]
    other = told(place.run("parse", "--source", "tags", "--session", "sess_2", input=TEXT.encode()))
    assert not {event["id"] for event in other} & {event["id"] for event in outputs[0]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--source", "tags", "--session", "x y"], "sess_"),
        (["--source", "morse"], "'tags', 'anthropic', 'claude-cli'"),
        ([], "--source"),
        (["--source", "tags", "--app", "nowhere:app"], "nowhere"),
        (["--source", "tags", "no-such-file"], "no-such-file"),
    ],
)
def test_wrong_options_are_said(place: Place, arguments: list[str], said: str) -> None:
    result = place.run("parse", *arguments, input=b"")
    assert (result.exit_code, said in result.stderr) == (2, True)


def test_bytes_that_are_no_utf_8_are_replaced(place: Place) -> None:
    events = told(place.run("parse", "--source", "tags", input=b"caf\xc3"))
    assert events[-1]["payload"]["result"] == "caf\ufffd"


def test_events_are_written_while_the_input_is_open(tmp_path: Path) -> None:
    command = [TURNLOG, "parse", "--source", "tags"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"Hello there")
        process.stdin.flush()
        early = [json.loads(process.stdout.readline())["type"] for _ in range(4)]
        assert early == ["session", "agent.start", "block.start", "block.delta"]
        rest, _ = process.communicate(b", you.")
        assert rest.count(b"\n") == 4
        assert process.returncode == 0
