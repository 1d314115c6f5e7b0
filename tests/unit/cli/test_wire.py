"""`turnlog convert` and `turnlog assemble`: filters that say what was said, and where a line is wrong."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.harness import SCOUT, Place, error, event, turn
from turnlog.cli import assemble, convert
from turnlog.events import Scope
from turnlog.vocabularies import DIALECTS
from turnlog.wire import sse

COMMAND = [sys.executable, "-c", "from turnlog.cli import main; main()"]
TRANSCRIPT = """\
Guide [1] scripted
text: Let me see.
call scout: {"city":"Rome"}
  result: dusk

Scout [2]
"""


@pytest.fixture
def exported(place: Place) -> bytes:
    place.session("sess_1", turn())
    return place.run("export").stdout_bytes


def converted(place: Place, lines: bytes, *arguments: str) -> bytes:
    result = place.run("convert", *arguments, input=lines)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout_bytes


def messages(body: bytes) -> list[sse.ServerSentEvent]:
    return sse.Decoder().feed(body)


def shown(place: Place, body: bytes, *arguments: str) -> str:
    result = place.run("assemble", *arguments, input=body)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_an_export_becomes_frames_and_the_frames_a_transcript(place: Place, exported: bytes) -> None:
    frames = converted(place, exported, "--to", "blocks")
    assert [message.id for message in messages(frames)] == ["1", "3", "4", "5", "7", "8", "11"]
    assert shown(place, frames) == TRANSCRIPT


OWN = """
from turnlog import Agent, App
from turnlog.agents import Scripted


class Typed:
    idle = True

    def __init__(self, options, history):
        pass

    def convert(self, envelope, payload):
        return [envelope.type.encode()]

    def close(self):
        return [b"over"]


app = App("desk", Agent("Guide", "", Scripted(lambda _: [])), dialects={"typed": Typed})
"""


def test_an_application_brings_its_own_dialect(
    place: Place, exported: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typed_desk.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    asked = ("--app", "typed_desk:app", "--to")
    frames = converted(place, exported, *asked, "typed", "--turn", "tr_1")
    assert [message.data for message in messages(frames)][-2:] == ["agent.end", "over"]
    assert converted(place, exported, *asked, "blocks") == converted(place, exported, "--to", "blocks")
    said = place.run("convert", *asked, "loud", input=exported).stderr
    assert f"'loud' is not one of {', '.join([*DIALECTS.names, 'typed'])}." in said
    assert "'typed' is not one of" in place.run("convert", "--to", "typed", input=exported).stderr


@pytest.mark.parametrize("name", DIALECTS.names)
def test_every_dialect_is_written_as_a_stream_and_a_turn_as_a_response(
    place: Place, exported: bytes, name: str
) -> None:
    stream = converted(place, exported, "--to", name)
    assert stream.startswith(b"id: ")
    assert b"[DONE]" not in stream
    response = converted(place, exported, "--to", name, "--turn", "tr_1")
    end = DIALECTS.request(name).framing.end
    assert response.endswith(b"\n\n" + end)
    assert response.removesuffix(end) in stream


def test_the_envelopes_are_not_written_anew(place: Place, exported: bytes) -> None:
    lines = exported.replace(b'"payload":', b'"from_the_future":1,"payload":', 1)
    data = [message.data for message in messages(converted(place, lines, "--to", "turnlog"))]
    assert data == lines.decode().split("\n")[1:-1]
    assert shown(place, converted(place, lines, "--to", "turnlog")) == TRANSCRIPT


def test_options_and_histories(place: Place, exported: bytes) -> None:
    asked = ("--stream-meta-history-and-tool-results", "--no-stream-tool-results")
    body = converted(place, exported, "--to", "blocks", *asked)
    metas = [
        json.loads(json.loads(message.data)["delta"]) for message in messages(body) if "meta_" in message.data
    ]
    assert metas[0]["message_history"] == []
    roles = [said["role"] for said in metas[-1]["conversation_history"]]
    assert roles == ["assistant", "user"]
    assert shown(place, body).endswith("\nScout [2]\nend: end_turn\n")


def test_a_turn_remembers_the_turns_before_it(place: Place) -> None:
    events = []
    for number in (1, 2):
        at = Scope(trace_id=f"tr_{number}", agent_id=f"agt_{number}", depth=0)
        start = {"name": "Guide", "via": "prompt", "prompt": f"question {number}"}
        events += [
            event(number * 10, "agent.start", start, at, "system"),
            event(number * 10 + 1, "agent.end", {"stop_reason": "end_turn"}, at, "system"),
        ]
    place.session("sess_1", events)
    lines = place.run("export").stdout_bytes
    asked = ("--turn", "tr_2", "--stream-meta-history-and-tool-results")
    first, *_ = messages(converted(place, lines, "--to", "blocks", *asked))
    assert "question 1" in json.dumps(json.loads(json.loads(first.data)["delta"])["message_history"])
    assert "question 1" not in converted(place, lines, "--to", "turnlog", "--turn", "tr_2").decode()


def test_sessions_one_after_the_other_begin_anew(place: Place, exported: bytes) -> None:
    other = exported.replace(b"sess_1", b"sess_2").replace(b"agt_", b"agt_x")
    both = converted(place, exported + other, "--to", "blocks")
    assert both == converted(place, exported, "--to", "blocks") + converted(place, other, "--to", "blocks")
    assert shown(place, both) == TRANSCRIPT + "\n" + TRANSCRIPT.replace("[", "[x")
    bare = b"\n".join(line for line in (exported + other).split(b"\n") if b'"type":"session"' not in line)
    assert converted(place, bare, "--to", "blocks") == both
    envelopes = converted(place, exported + other, "--to", "turnlog")
    assert shown(place, envelopes) == shown(place, both)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"no json", "line 3: JSON is malformed"),
        (b'{"type":"ui.message"}', "line 3: not an envelope"),
        (b"\x1b[2J\xff", "line 3: JSON is malformed"),
    ],
)
def test_a_wrong_line_is_named_after_what_was_good(
    place: Place, exported: bytes, line: bytes, words: str
) -> None:
    lines = exported.split(b"\n")
    result = place.run("convert", "--to", "blocks", input=b"\n".join([*lines[:3], line, *lines[3:]][1:]))
    assert error(result).startswith(words)
    assert [message.id for message in messages(result.stdout_bytes)] == ["1"]


def test_events_out_of_order_are_named(place: Place, exported: bytes) -> None:
    lines = exported.split(b"\n")
    result = place.run("convert", "--to", "turnlog", input=b"\n".join([*lines[:4], lines[2]]))
    assert error(result) == "line 5: expected a seq after 2, got 1 (at $.seq)"


def test_a_turn_that_is_not_there_is_said(place: Place, exported: bytes) -> None:
    result = place.run("convert", "--to", "blocks", "--turn", "tr_none", input=exported)
    assert (error(result), result.stdout) == ("no event of turn tr_none", "")


def test_nothing_in_is_nothing_out(place: Place) -> None:
    assert converted(place, b"\n\n", "--to", "blocks") == b""
    assert shown(place, b"") == ""
    assert json.loads(shown(place, b"", "--json"))["blocks"] == []


def test_the_whole_is_printed_as_json(place: Place, exported: bytes) -> None:
    frames = converted(place, exported, "--to", "blocks")
    read = json.loads(shown(place, frames, "--json"))
    assert [block["type"] for block in read["blocks"]] == ["text", "tool_call"]
    assert read["blocks"][1]["results"][0]["text"] == "dusk"
    assert [agent["meta_init"]["agent_name"] for agent in read["agents"]] == ["Guide", "Scout"]


def test_what_comes_again_is_left_out_and_a_reset_begins_anew(place: Place, exported: bytes) -> None:
    frames = converted(place, exported, "--to", "turnlog")
    assert shown(place, frames + frames) == TRANSCRIPT
    reset = b'event: reset\ndata: {"type":"reset","reason":"epoch"}\n\n'
    assert shown(place, frames + reset + frames) == TRANSCRIPT
    noise = b': ping\n\nretry: 5\n\nevent: heartbeat\ndata: {"type":"heartbeat"}\n\ndata: [PING]\n\n'
    assert shown(place, noise + frames + b"data: [DONE]\n\n") == TRANSCRIPT
    assert shown(place, sse.BOM + frames.replace(b"\n", b"\r\n")) == TRANSCRIPT


TEXT = b'data: {"type":"text","agent":"a","final":%b,"delta":"Hi"}\n\n'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"type":"text"}\n', 'line 4: expected a line of a stream, such as `data: {...}`, got \'{"type"'),
        (b"<html>\n", "line 4: expected a line of a stream"),
        (b"data: <meta_init>\n\n", "line 4: expected a message of `blocks` or `turnlog`, got '<meta_init>'"),
        (b"data: {\ndata: no\n\n", "line 4: expected a message of `blocks` or `turnlog`, got '{\\nno'"),
        (b'data: {"type":"message_stop","agent":"a"}\n\n', "line 4: expected a message of `blocks`"),
        (b'data: {"type":"text","agent":5}\n\n', "line 4: expected a message of `blocks` or `turnlog`"),
        (b'data: {"payload":{}}\n\n', "line 4: not an envelope"),
        (b'data: {"type":"text"}\n', "line 4: expected an empty line after it, got the end"),
        (b"data: \x1b[2J\n\n", "line 4: expected a message of `blocks` or `turnlog`, got '\\x1b[2J'"),
    ],
)
def test_a_wrong_message_is_named_after_what_was_good(place: Place, body: bytes, words: str) -> None:
    for arguments in ([], ["--json"]):
        result = place.run("assemble", *arguments, input=b"id: 1\n" + TEXT % b"true" + body)
        assert error(result).startswith(words)
        assert "Hi" in result.stdout


def test_a_stream_that_is_too_long_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "Decoder", lambda: REAL(90))
    result = place.run("assemble", input=TEXT % b"true" + b"data: " + b"x" * 100 + b"\n\n")
    assert error(result).startswith("line 3: expected an SSE message of at most 90 bytes, got more")


REAL = sse.Decoder


def test_unknown_types_are_counted_beside_the_text(place: Place) -> None:
    result = place.run("assemble", input=TEXT % b"true" + b'data: {"type":"hologram","agent":"a"}\n\n')
    assert (result.exit_code, result.stdout) == (0, "[a]\ntext: Hi\n")
    assert result.stderr == "note: 1 message of unknown types left out\n"


def test_an_open_block_is_called_incomplete(place: Place) -> None:
    assert shown(place, TEXT % b"false") == "[a]\ntext (incomplete): Hi\n"


def test_text_cannot_control_the_terminal_and_lines_stay_lines(place: Place) -> None:
    body = b'data: {"type":"text","agent":"a","final":true,"delta":"one\\n\\u001b[2Jtwo \\u202e"}\n\n'
    assert shown(place, body) == "[a]\ntext: one\n  \\x1b[2Jtwo \\u202e\n"


def on_terminal(*arguments: str, **environment: str) -> bytes:
    """What a command writes to a terminal; its input is a file that is named."""
    leader, follower = pty.openpty()
    plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    subprocess.run(
        [*COMMAND, *arguments], stdout=follower, env=plain | {"TERM": "xterm"} | environment, check=True
    )
    os.close(follower)
    written = b""
    try:
        while piece := os.read(leader, 65536):
            written += piece
    except OSError:  # Linux: the other end is closed
        pass
    os.close(leader)
    return written


def test_colours_are_for_terminals(tmp_path: Path, place: Place, exported: bytes) -> None:
    file = tmp_path / "frames"
    file.write_bytes(converted(place, exported, "--to", "blocks"))
    assert b"\x1b[36mtext:\x1b[0m Let me see." in on_terminal("assemble", str(file))
    assert b"\x1b[36m" not in on_terminal("assemble", str(file), NO_COLOR="1")
    assert "\x1b" not in shown(place, file.read_bytes())


def test_frames_on_a_terminal_are_harmless(tmp_path: Path, place: Place) -> None:
    place.session("sess_1", [event(0, "assistant.message", {"text": "a\u202eb\x1b"}, SCOUT, "model")])
    file = tmp_path / "lines"
    file.write_bytes(place.run("export").stdout_bytes)
    assert b"a\\u202eb" in on_terminal("convert", "--to", "blocks", str(file))
    assert "a\u202eb" in converted(place, file.read_bytes(), "--to", "blocks").decode()


def test_a_terminal_is_no_source() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "rb", buffering=0) as terminal:
        for arguments in (["convert", "--to", "blocks"], ["assemble"]):
            ran = subprocess.run([*COMMAND, *arguments], stdin=terminal, capture_output=True, check=False)
            assert (ran.returncode, b"expected a FILE, or lines on stdin" in ran.stderr) == (2, True)
    os.close(leader)


def test_frames_come_event_by_event(exported: bytes) -> None:
    with subprocess.Popen(
        [*COMMAND, "convert", "--to", "turnlog"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as ran:
        assert ran.stdin
        assert ran.stdout
        for line in exported.split(b"\n")[1:4]:
            ran.stdin.write(line + b"\n")
            ran.stdin.flush()
            assert ran.stdout.readline().startswith(b"id: ")
            assert ran.stdout.readline() == b"data: " + line + b"\n"
            assert ran.stdout.readline() == b"\n"
        ran.stdin.close()
        assert ran.wait() == 0


def test_a_reader_that_leaves_is_no_error_to_speak_of(tmp_path: Path, exported: bytes) -> None:
    file = tmp_path / "lines"
    many = [exported.replace(b"sess_1", b"sess_%d" % number) for number in range(400)]
    file.write_bytes(b"".join(many))
    with subprocess.Popen(
        [*COMMAND, "convert", "--to", "blocks", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ran:
        assert ran.stdout
        assert ran.stderr
        assert ran.stdout.readline() == b"id: 1\n"
        ran.stdout.close()
        assert ran.stderr.read() == b""
        assert ran.wait() == 1


class Interrupted(io.BytesIO):
    """Some lines, then Ctrl+C."""

    def readline(self, size: int | None = -1) -> bytes:
        if line := super().readline(size):
            return line
        raise KeyboardInterrupt


def test_ctrl_c_ends_a_filter_without_a_word(
    exported: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert convert.convert_command.callback
    assert assemble.assemble.callback
    with pytest.raises(SystemExit, match="130"):
        convert.convert_command.callback(Interrupted(exported), "turnlog", None, None)
    out, err = capfdbinary.readouterr()
    assert (out.count(b"id: "), err) == (13, b"")
    with pytest.raises(SystemExit, match="130"):
        assemble.assemble.callback(Interrupted(TEXT % b"true"), False)
    assert capfdbinary.readouterr() == (b"[a]\ntext: Hi\n", b"")
