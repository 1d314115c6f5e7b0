"""The example `assistant` over real sockets: one turn with everything `blocks` can say (document 003)."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.examples import (
    APPS,
    BOTH,
    assembled,
    bodies,
    durable,
    over,
    read,
    replayed,
    told,
    watch,
)
from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.killed_at_work import kill_and_continue
from tests.e2e.test_crash import NOTHING, answer, open_things
from tests.test_seed_names import NAMES
from turnlog.client.assembler import Assembler
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog_examples.assistant.tools import FIELDS, LIMIT_KNOTS, forecast

CALM = "Oslo"  # and without a field: everything happens


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(f"{APPS}fast_assistant", tmp_path_factory.mktemp("assistant")) as server:
        yield server


def asked(server: Server, session: str, reader: Reader, place: str) -> Any:
    """Send a place; what the page is asked."""
    server.send(session, f"Can we fly from {place}?")
    [call] = read(reader, kind("tool.await"))[-1]["payload"]["calls"]
    return call


def briefing(server: Server, place: str, decision: bool = True) -> tuple[str, list[Any]]:
    """A session, and the events of its whole first turn with the answer to its question."""
    session = server.session()
    reader = Reader(server, session)
    assert answer(server, session, asked(server, session, reader, place), decision)[0] == 202
    read(reader, over)
    assert open_things(reader.events) == NOTHING
    return session, reader.events


def root_of(events: list[Any]) -> str:
    return str(next(event["agent_id"] for event in events if event["type"] == "agent.start"))


def put_together(server: Server, session: str, events: list[Any]) -> Assembler:
    return assembled(told(server, session, root_of(events)))


def text_of(assembler: Assembler) -> str:
    return "\n".join(block.text for block in assembler.blocks if block.type == "text")


def test_the_places_of_these_tests_are_what_they_are_taken_for() -> None:
    calm = {
        place: max(forecast(place).values()) <= LIMIT_KNOTS for place in ("Oslo", "Göreme", "Bristol", "Wick")
    }
    known = {place: place.casefold() in FIELDS for place in calm}
    assert calm == {"Oslo": True, "Göreme": True, "Bristol": False, "Wick": False}
    assert known == {"Oslo": False, "Göreme": True, "Bristol": True, "Wick": False}


def check_order(messages: list[Any]) -> None:
    """The order that the document allows, for each agent by itself."""
    for agent in {message["agent"] for message in messages}:
        mine = [message for message in messages if message["agent"] == agent]
        kinds = [message["type"] for message in mine]
        assert kinds[0] == "meta_init"
        first, last = kinds.index("meta_final"), len(kinds) - 1
        assert set(kinds[first:]) == {"meta_final"}, "nothing comes after the summary"
        assert [place for place, message in enumerate(mine) if message["final"]][-1] == last
        check_blocks(mine)
        check_results(mine)


def check_blocks(mine: list[Any]) -> None:
    """A text or thinking is said without a break and ended; sources stand right behind their text."""
    open_ = ""
    for before, message in zip([{"type": "", "final": True}, *mine], mine, strict=False):
        name = message["type"]
        assert open_ in ("", name)
        if name in ("text", "thinking"):
            open_ = "" if message["final"] else name
        elif name == "citation":
            assert before["type"] in ("text", "citation")
            assert before["final"] == (before["type"] == "text")
        elif name == "rollback":
            assert before["final"], "what is open is ended before it is void"
    assert open_ == ""


def check_results(mine: list[Any]) -> None:
    """A result follows its call, images stand inside their result, the page is asked after the others."""
    called: list[str] = []
    answered: list[str] = []
    inside = ""
    for message in mine:
        name, call = message["type"], message.get("id", "")
        if name in ("tool_call", "server_tool_call"):
            called.append(call)
        elif name == "tool_result_image":
            assert inside == call
        elif name in ("tool_result", "server_tool_result"):
            assert call in called
            assert inside in ("", call)
            inside = "" if message["final"] else call
            answered += [call] if message["final"] else []
        elif name == "awaiting_frontend_tools":
            waits = {item["tool_use_id"] for item in json.loads(message["delta"])}
            assert set(called) - set(answered) == waits, "all that runs here is done"
    assert sorted(called) == sorted(answered)


def test_one_turn_has_all_13_types_and_a_rollback_in_an_order_the_document_allows(server: Server) -> None:
    session, events = briefing(server, CALM)
    said = told(server, session, root_of(events))
    assert all(len(message.data.encode()) <= MAX_MESSAGE_BYTES for message in said)
    messages = [json.loads(message.data) for message in said]
    assert {message["type"] for message in messages} == {*NAMES["003"], "rollback"}
    check_order(messages)
    for name in (
        "meta_init",
        "thinking",
        "text",
        "tool_call",
        "server_tool_call",
        "tool_result",
        "meta_final",
    ):
        place = max(place for place, item in enumerate(messages) if item["type"] == name and item["final"])
        with pytest.raises((AssertionError, ValueError)):  # the check sees what is missing
            check_order(messages[:place] + messages[place + 1 :])


def test_a_reader_of_blocks_puts_the_whole_turn_together(server: Server) -> None:
    session, events = briefing(server, CALM)
    assembler = put_together(server, session, events)
    [root, tower] = assembler.agents.values()
    mine = [block for block in assembler.blocks if block.agent == root.id]
    assert [(block.type, block.name) for block in mine] == [
        ("thinking", None),
        ("text", None),
        ("server_tool_call", "web_search"),
        ("text", None),
        ("tool_call", "wind"),
        ("tool_call", "camera"),
        ("tool_call", "register"),
        ("tool_call", "tower"),
        ("text", None),
        ("tool_call", "confirm"),
        ("awaiting_frontend_tools", None),
        ("thinking", None),
        ("server_tool_call", "code_execution"),
        ("text", None),
        ("meta_files", None),
    ]
    said = [event["payload"]["text"] for event in events if event["type"] == "assistant.message"]
    assert [block.text for block in mine if block.type == "text"] == said
    assert said[0] == "Before a flight I look at the rules.", "the words that broke off were taken back"
    sources = [citation.fields["citation_type"] for block in mine for citation in block.citations]
    assert sources == ["web_search_result_location"] * 2 + ["char_location"]
    assert assembler.pending == []
    [error] = [block for block in assembler.blocks if block.agent == tower.id]
    assert error.value == {"type": "not_found_error", "message": "There is no tower at Oslo."}


def test_results_pictures_files_and_costs_are_those_of_the_log(server: Server) -> None:
    session, events = briefing(server, CALM)
    assembler = put_together(server, session, events)
    calls = {block.name: block for block in assembler.blocks if block.type.endswith("tool_call")}
    results = {name: call.results[0] for name, call in calls.items()}
    assert json.loads(results["wind"].text)["strongest"] == max(forecast(CALM).values())
    assert [image["media_type"] for image in results["wind"].images] == ["image/png"]
    assert [image["media_type"] for image in results["camera"].images] == ["image/png"]
    assert json.loads(results["register"].text) == {"code": "EXECUTION_ERROR", "message": "register failed"}
    assert json.loads(results["tower"].text)["message"] == "There is no tower at Oslo."
    assert results["confirm"].text == "true"
    root = next(iter(assembler.agents.values()))
    final = root.meta_final or {}
    [files] = [block.value for block in assembler.blocks if block.type == "meta_files"]
    assert final["generated_files"] == files
    end = events[-1]["payload"]
    assert (final["stop_reason"], final["total_steps"]) == ("end_turn", 3)
    assert final["cost"] == end["cost"]
    usages = [event["payload"] for event in events if event["type"] == "agent.usage" and event["depth"] == 0]
    assert len(usages) == 3
    assert end["cost"]["total_cost"] == pytest.approx(sum(item["cost"]["total_cost"] for item in usages))
    tokens = [sum(item["usage"][name] for item in usages) for name in ("input_tokens", "output_tokens")]
    assert tokens[1] == 360
    assert final["cumulative_usage"] == {
        **{"input_tokens": tokens[0], "output_tokens": tokens[1]},
        **{"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
    }
    assert end["cost"]["total_cost"] == pytest.approx((3 * tokens[0] + 15 * tokens[1]) / 1e6, abs=1e-5)
    history = final["conversation_history"]
    assert isinstance(history, list)
    assert [turn["role"] for turn in history] == ["user", "assistant"] * 3


def test_pictures_and_files_are_messages_of_their_own(server: Server) -> None:
    session, events = briefing(server, CALM)
    messages = [json.loads(message.data) for message in told(server, session, root_of(events))]
    base = {"type", "agent", "final", "delta"}
    images = [message for message in messages if message["type"] == "tool_result_image"]
    logged = [result for result in bodies(events, "tool.result") if result.get("images")]
    assert [image["name"] for image in images] == [result["tool"] for result in logged]
    for image, result in zip(images, logged, strict=True):
        address = result["images"][0]["src"]
        data = server.get(f"/{address}")[1]
        assert image["src"] in (address, f"data:image/png;base64,{b64encode(data).decode()}")
    assert all(set(image) == base | {"id", "name", "src", "media_type"} for image in images)
    [files] = [message for message in messages if message["type"] == "meta_files"]
    assert (set(files), files["final"]) == (base, True)
    assert json.loads(files["delta"])["files"] == bodies(events, "assistant.files")[0]["files"]
    root = [message["type"] for message in messages if message["agent"] == files["agent"]]
    assert root[root.index("meta_files") + 1] == "meta_final"


@pytest.mark.parametrize(
    ("place", "decision", "words"),
    [
        ("Göreme", True, "Göreme tower: free to launch until noon."),
        ("Göreme", False, "As you like. The balloon stays in its bag."),
        (CALM, False, "The register does not know the field. Nobody answers in the tower."),
    ],
)
def test_place_and_answer_decide_what_happens(server: Server, place: str, decision: bool, words: str) -> None:
    session, events = briefing(server, place, decision)
    assembler = put_together(server, session, events)
    assert words in text_of(assembler)
    types = {block.type for block in assembler.blocks}
    assert ("meta_files" in types) == decision
    assert ("error" in types) == (place.casefold() not in FIELDS)


def test_serve_debug_with_a_tool_that_fails_says_what_it_raised(tmp_path: Path) -> None:
    with running(f"{APPS}fast_assistant", tmp_path, options=["--debug"]) as server:
        events = watch(server, server.session(), CALM, kind("tool.await"))
    [failed] = [result for result in bodies(events, "tool.result") if result["tool"] == "register"]
    assert failed["error"]["message"].startswith("register failed: KeyError")


@pytest.mark.parametrize("place", ["Bristol", "Wick"])
def test_too_much_wind_ends_the_briefing_without_a_question(server: Server, place: str) -> None:
    session = server.session()
    events = watch(server, session, place, over)
    assert bodies(events, "tool.await") == []
    assert "no flight today" in events[-1]["payload"]["result"]


def test_what_broke_off_was_shown_and_then_taken_back(server: Server) -> None:
    session = server.session()
    events = watch(server, session, CALM, kind("tool.await"))
    [retract] = bodies(events, "block.retract")
    assert retract["reason"] == "overloaded_error"
    shown = [event["payload"]["text"] for event in events if event["type"] == "block.delta"]
    assert "".join(shown).startswith("A flight, then.Before a flight I look at the")
    aborted = [end for end in bodies(events, "block.end") if end["status"] == "aborted"]
    assert [end["block_id"] in retract["block_ids"] for end in aborted] == [True]
    assert bodies(events, "session.error")[0]["message"] == "There is no tower at Oslo.", "the only error"


def test_a_replay_holds_what_was_seen_live(server: Server) -> None:
    session = server.session()
    live = watch(server, session, CALM, kind("tool.await"))
    assert answer(server, session, live[-1]["payload"]["calls"][0], True)[0] == 202
    reader = Reader(server, session, last_id=str(live[-1]["seq"]))
    live += read(reader, over)
    again = replayed(server, session, live[-1]["seq"])
    assert durable(again) == durable(live)
    first, second = (told(server, session, root_of(live)) for _ in range(2))
    assert [(item.id, item.data) for item in first] == [(item.id, item.data) for item in second]


def test_a_reader_of_blocks_who_is_cut_off_again_and_again_has_the_same_turn(server: Server) -> None:
    session, events = briefing(server, CALM)
    whole = told(server, session, root_of(events))
    reader = Reader(server, session, BOTH)
    cuts = 0
    while not asyncio.run(reader.read(lambda message: message.id == whole[-1].id, cut=2500)):
        cuts += 1
    assert cuts > 5
    cut = [(message.id, message.data) for message in reader.messages if message.event == "message"]
    assert cut == [(message.id, message.data) for message in whole]
    assert assembled(reader.messages).as_json() == assembled(whole).as_json()


@pytest.mark.parametrize("moment", [("block.delta", "Assistant"), ("agent.start", "Tower")])
def test_assistant_killed_at_work_goes_on_with_the_same_question_and_ends_once(
    tmp_path: Path, moment: tuple[str, str]
) -> None:
    events = kill_and_continue(f"{APPS}slow_assistant", tmp_path, "Bristol", moment)
    assert {end["stop_reason"] for end in bodies(events, "agent.end")} == {"end_turn"}


def test_a_question_outlives_the_server_and_its_pictures_do_too(tmp_path: Path) -> None:
    with running(f"{APPS}fast_assistant", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        call = asked(server, session, reader, CALM)
        port = server.port
        server.kill()
    with running(f"{APPS}fast_assistant", tmp_path, port) as server:
        reader.server = server
        assert answer(server, session, call, True)[0] == 202
        read(reader, over)
        assert open_things(reader.events) == NOTHING
        assert reader.events[-1]["payload"]["files"][0]["filename"] == "flight-plan.txt"
        blocks = put_together(server, session, reader.events).blocks
        assert sum(len(held.images) for block in blocks for held in block.results) == 2
        results = bodies(reader.events, "tool.result")
        images = [image["src"] for result in results for image in result.get("images", ())]
        kept = [server.get(f"/{address}") for address in images]
        assert all(status == 200 and data.startswith(b"\x89PNG\r\n\x1a\n") for status, data in kept)
