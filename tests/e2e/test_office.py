"""The example `office` over sockets: document 004's interfaces, rules, documents and consequences."""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.examples import durable, replayed
from tests.e2e.harness import ROOT, Reader, Server
from tests.e2e.office_desk import OFFICE, Desk, bodies, of, serving, typed, unended, words
from tests.support.typescript import interfaces
from tests.test_seed_fields import interface_name
from tests.test_seed_names import NAMES
from turnlog.server.console_files import console_routes

CONSOLE = ROOT / "web" / "console"
INTERFACES = Path(__file__).parents[1] / "vectors" / "office" / "interfaces.ts"
SHAPES = interfaces(INTERFACES.read_text(), "ServerEvent")
BEATING = ("--heartbeat", "0.2")
LYRA = {"name": "Lyra", "color": "#c9b1ff", "color_name": "lavender", "seat": 0}
KNOWN = {"has_soul": True, "has_transcript": True}
GHOST = {"name": "Ghost", "color": "", "color_name": "", "seat": 7, "has_soul": True, "has_transcript": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the office is; all tests that use it write pages of their own."""
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder) as server:
        yield server


@pytest.fixture
def desk(server: Server) -> Desk:
    return Desk.at(server)


def fits(message: Any) -> bool:
    return SHAPES[interface_name(message["type"])].matches(message)


def a_day(desk: Desk) -> None:
    """Everything that happens in an office, once."""
    assert desk.command("session.start", demo_mode=True)[0] == 202
    desk.until(typed("process.start", process="model"))
    desk.summon()
    desk.say("Please look happy")
    desk.say("Write about ships")
    desk.say("Who is here?")
    desk.say("How are you?", "Lyra")
    desk.command("offer_work", agent="Orin", jobs=["librarian"])
    desk.turn()
    desk.command("job_help", form={"name": "Librarian"})
    desk.turn()
    desk.say("/login")
    desk.say("/compact")
    desk.say("/auth")
    desk.command("wake", agents=[LYRA | KNOWN])
    desk.turn()
    assert desk.command("session.end")[0] == 202
    desk.until(typed("process.end"))


class TestInterfaces:
    def test_a_day_has_every_type_with_exactly_its_fields(self, desk: Desk) -> None:
        a_day(desk)
        told = desk.office()
        assert {message["type"] for message in told} == set(NAMES["004"]) - {"heartbeat"}
        assert [message for message in told if not fits(message)] == []
        assert [message["id"] for message in told] == sorted({message["id"] for message in told})
        assert {message["sessionId"] for message in told} == {desk.session}
        assert unended(desk.reader.events[2:]) == [], "all but the server itself"

    def test_what_the_fields_say_is_what_happened(self, desk: Desk, folder: Path) -> None:
        a_day(desk)
        told = desk.office()
        seen = desk.reader.events
        times = {event["seq"]: datetime.fromisoformat(event["ts"]) for event in seen}
        assert {one["id"]: one["ts"] for one in told} == {
            one["id"]: round(times[one["id"]].timestamp() * 1000) for one in told
        }
        [start] = of(told, "session_start")
        [end] = of(told, "session_end")
        assert (start["model"], start["demoMode"], end["reason"]) == ("standin-1", True, "user_ended")
        assert start["pid"] == bodies(seen, "process.end")[0]["pid"] != desk.server.process.pid
        [first] = of(told, "claude_system")
        assert {"Write", "Bash"} <= set(first["availableTools"])
        assert (folder / "office" / ".standin" / f"{first['claudeSessionId']}.json").exists(), "its own name"
        assert [one["authMethod"] for one in of(told, "auth_state")] == ["none", "oauth", "none"]
        assert [one["code"] for one in of(told, "server_error")] == ["auth_failed"]
        [waking] = of(told, "user_wake")
        assert waking["agentPayloads"] == [
            {
                "name": "Lyra",
                "color": "#c9b1ff",
                "colorName": "lavender",
                "gridPosition": 0,
                "hasSoul": True,
                "hasTranscript": True,
            }
        ]
        assert [one["agentName"] for one in of(told, "agent_work_offered")] == ["Orin"]
        born = [one["agent"]["createdAt"] for one in of(told, "agent_registered")]
        assert all(datetime.fromisoformat(time).tzinfo for time in born)
        assert set(of(told, "job_help")[0]["suggestions"]) == {"description", "skills"}
        costs = [one["costUsd"] for one in of(told, "claude_result")]
        assert all(cost is not None and cost >= 0 for cost in costs)
        assert [one["subtype"] for one in of(told, "claude_result")].count("error") == 1

    def test_a_process_in_demo_mode_says_so(self, tmp_path: Path) -> None:
        with serving(tmp_path, "demo") as server:
            desk = Desk.at(server)
            desk.say("Hello")
            assert [one["demoMode"] for one in of(desk.office(), "session_start")] == [True]

    def test_a_sign_in_by_a_setup_token_is_told_once(self, tmp_path: Path) -> None:
        with serving(tmp_path, "signed") as server:
            desk = Desk.at(server)
            desk.say("Hello")
            desk.say("Hello again")
            told = desk.office()
            [auth] = of(told, "auth_state")
            assert (auth["authMethod"], auth["needsSetup"]) == ("setup_token", False)
            assert auth["expiresInMinutes"] is None
            assert "sk-test" not in json.dumps([told, desk.reader.events])

    def test_a_heartbeat_comes_when_nothing_else_does(self, tmp_path: Path) -> None:
        with serving(tmp_path, options=BEATING) as server:
            desk = Desk.at(server)
            desk.say("Hello")
            last = desk.reader.events[-1]["seq"]
            [beat] = desk.told(typed("heartbeat"), f"&after={last}")
            assert fits(beat)
            assert (beat["id"], beat["sessionId"]) == (last, desk.session)
            *messages, beat = desk.told(typed("heartbeat"), "&ids=dense")
            assert [one["id"] for one in messages] == list(range(len(messages)))
            assert beat["id"] == messages[-1]["id"]
            [beat] = desk.told(typed("heartbeat"), f"&ids=dense&after={beat['id']}")
            assert beat["id"] == messages[-1]["id"], "it goes on from there"

    def test_no_page_ever_sees_a_marker(self, desk: Desk) -> None:
        a_day(desk)
        told = json.dumps(desk.office()) + json.dumps(desk.reader.events)
        for marker in ("[AGENT_REGISTERED]", "[AGENT_STATUS]", "[AGENT_WORK_OFFERED]", "[JOB_HELP]"):
            assert marker not in told


class TestRules:
    def test_1_every_text_block_is_searched(self, desk: Desk) -> None:
        desk.summon()
        events = desk.say("Who is here?")  # the marker is in a second block, which is nothing else
        assert words(events) == "Lyra, Orin and Wren and I are here."
        assert len(bodies(events, "roster.status")) == 1

    def test_2_a_registration_is_an_event_and_the_text_around_it_stays(self, desk: Desk) -> None:
        events = desk.summon()
        joined = bodies(events, "roster.join")
        assert [(one["name"], one["seat"]) for one in joined] == [("Lyra", 0), ("Orin", 1), ("Wren", 2)]
        assert words(events).endswith("They are here.\nWelcome, Lyra, Orin and Wren.")

    def test_3_a_status_is_an_event_and_no_text(self, desk: Desk) -> None:
        desk.summon()
        events = desk.say("Orin may go")
        [status] = bodies(events, "roster.status")
        assert {one["name"]: one["status"] for one in status["agents"]}["Orin"] == "shutdown"
        assert words(events) == "Orin left."

    def test_4_a_page_is_an_artifact_after_its_result(self, desk: Desk, folder: Path) -> None:
        events = desk.say("Write about whales") + desk.say("Write about whales")
        order = [event["type"] for event in events if event["type"] in ("tool.result", "artifact.write")]
        assert order == ["tool.result", "artifact.write"] * 2
        [first, second] = bodies(events, "artifact.write")
        file = folder / "office" / "memory" / "notes" / "whales.html"
        assert (first["is_new"], second["is_new"]) == (True, False)
        assert second["size_bytes"] == len(file.read_bytes())
        assert (first["filename"], first["path"]) == ("notes/whales.html", "memory/notes/whales.html")
        assert first["meta"] == {"description": "Notes about whales", "category": "knowledge", "chapter": "1"}

    def test_4_what_fails_or_is_elsewhere_is_no_artifact(self, desk: Desk, folder: Path) -> None:
        events = desk.say("Draft something about crabs")
        (folder / "office" / "memory" / "notes" / "snails.html").mkdir(parents=True)
        events += desk.say("Write about snails")
        assert [body["ok"] for body in bodies(events, "tool.result")] == [True, False]
        assert (folder / "office" / "drafts" / "crabs.html").exists()
        assert bodies(events, "artifact.write") == []

    def test_5_a_command_to_the_screen_is_an_event(self, desk: Desk) -> None:
        events = desk.say("Please look happy") + desk.say("A background of stars")
        assert bodies(events, "screen.command") == [
            {"command": "FACE happy", "expression": "happy"},
            {"command": "BG of stars"},
        ]
        assert [one.get("expression") for one in of(desk.office(), "screen_command")] == ["happy", None]

    @pytest.mark.parametrize(
        ("text", "target"), [("How are you?", "Lyra"), ("[ROUTE TO AGENT: Lyra] How are you?", None)]
    )
    def test_6_the_answer_of_whom_a_message_is_for_has_its_name(
        self, desk: Desk, text: str, target: str | None
    ) -> None:
        desk.summon()
        desk.say(text, target)
        told = desk.office()
        [asked], [said] = of(told, "user_message"), of(told, "agent_message")
        assert (asked["text"], asked["targetAgent"]) == ("How are you?", "Lyra")
        assert said["agentName"] == "Lyra"
        assert said["content"] == [{"type": "text", "text": "Lyra here. You said: How are you?"}]


class TestDocuments:
    def test_the_table(self, desk: Desk) -> None:
        desk.summon()
        desk.say("How are you?", "Lyra")
        desk.say("Orin may go")
        said = [one["body"] for one in desk.documents("message")]
        users = [body for body in said if body["role"] == "user"]
        assert {body["speakerType"] for body in users} == {"human"}
        spoken = [body for body in said if body["role"] == "assistant"]
        assert {body["speakerType"] for body in spoken} == {"agent"}
        assert "Lyra" in {body["speakerName"] for body in spoken}
        people = {one["id"]: one["body"] for one in desk.documents("agent-identity")}
        assert {key: (body["name"], body["status"]) for key, body in people.items()} == {
            "agent-identity:0": ("Lyra", "alive"),
            "agent-identity:1": ("Orin", "sleeping"),
            "agent-identity:2": ("Wren", "alive"),
        }
        assert len(desk.documents("artifact")) == 3
        kinds = [one["body"]["kind"] for one in desk.documents("marker")]
        assert kinds == ["session_start", "session_start"], "of the server, and of the process"
        categories = {one["type"]: one["category"] for one in desk.documents()}
        assert categories == {
            "message": "transcript",
            "agent-identity": "identity",
            "artifact": "knowledge",
            "marker": "operational",
        }

    def test_nothing_else_is_a_document(self, desk: Desk) -> None:
        before = len(desk.documents())
        for text in ("/login", "/compact", "/auth", "Please look happy"):
            desk.say(text)
        types = [one["type"] for one in desk.documents()[before:]]
        assert set(types) <= {"message", "marker"}


class TestConsequences:
    def test_1_a_reader_that_was_away_misses_no_registration(self, desk: Desk) -> None:
        desk.say("Hello")
        tab = Reader(desk.server, desk.session, OFFICE)
        assert asyncio.run(tab.read(lambda message: "claude_result" in message.data))
        desk.summon()
        assert asyncio.run(tab.read(lambda message: "claude_result" in message.data))
        joined = of(tab.events, "agent_registered")
        assert [one["agent"]["gridPosition"] for one in joined] == [0, 1, 2]
        assert tab.events == desk.office()

    def test_2_a_summon_makes_nobody_and_leaves_no_ghost(self, desk: Desk) -> None:
        desk.say("/die 12")
        [seq] = desk.command("summon")[1]["seqs"]
        desk.until(typed("process.end"))
        assert desk.grid() == {4: ("Julian", "sleeping")}
        assert desk.state(at=str(seq))["state"]["hatching"] is not None
        assert desk.state()["state"]["hatching"] is None
        assert desk.documents("agent-identity") == []

    def test_2_whoever_does_not_wake_up_is_forgotten(self, desk: Desk) -> None:
        [seq] = desk.command("wake", agents=[GHOST])[1]["seqs"]
        desk.turn()
        assert desk.grid(seq)[7] == ("Ghost", "hatching")
        assert desk.grid() == {4: ("Julian", "alive")}
        assert desk.documents("agent-identity") == []

    def test_3_the_latest_status_tells_who_is_alive(self, desk: Desk) -> None:
        desk.summon()
        desk.say("Orin may go")
        desk.say("Who is here?")
        latest = of(desk.office(), "agent_status")[-1]
        assert [one["name"] for one in latest["agents"]] == ["Lyra", "Wren"]
        alive = [name for name, state in desk.grid().values() if state == "alive"]
        assert alive == ["Lyra", "Wren", "Julian"]

    def test_4_the_end_of_a_session_puts_everybody_to_sleep(self, desk: Desk) -> None:
        desk.summon()
        desk.command("session.end")
        desk.until(typed("process.end"))
        assert {state for _, state in desk.grid().values()} == {"sleeping"}
        assert {one["body"]["status"] for one in desk.documents("agent-identity")} == {"sleeping"}
        assert of(desk.office(), "session_end")[-1]["reason"] == "user_ended"

    def test_5_tabs_know_nothing_of_each_other(self, desk: Desk) -> None:
        async def watch() -> list[list[Any]]:
            tabs = [Reader(desk.server, desk.session, OFFICE) for _ in range(3)]
            over = lambda message: "claude_result" in message.data  # noqa: E731
            steady = [asyncio.create_task(tab.read(over)) for tab in tabs[:2]]
            assert desk.command("session.start")[0] == 202
            await tabs[2].read(lambda message: "session_start" in message.data)  # this one is reloaded
            await asyncio.to_thread(desk.summon)
            again = Reader(desk.server, desk.session, OFFICE)
            assert await again.read(over)
            assert all(await asyncio.gather(*steady))
            return [tab.events for tab in (*tabs[:2], again)]

        first, second, again = asyncio.run(watch())
        assert first == second == again
        assert len(of(first, "agent_registered")) == 3


class TestSend:
    def test_a_page_sends_the_commands_of_the_document_in_its_own_words(self, desk: Desk) -> None:
        def send(**body: Any) -> None:
            status, answer = desk.server.post("/api/send", {"session": desk.session, **body})
            assert (status, type(answer["eventId"])) == (202, int), answer

        send(type="user_session_start", demoMode=True, hasPreviousTranscript=False, hasArtifactCatalog=True)
        desk.until(typed("process.start", process="model"))
        send(type="user_summon")
        desk.turn()
        agent = {"name": "Lyra", "color": "#c9b1ff", "colorName": "lavender", "gridPosition": 0}
        send(type="user_wake", agentPayloads=[{**agent, "hasSoul": True, "hasTranscript": True}])
        desk.turn()
        send(type="user_session_end")
        desk.until(typed("process.end"))
        told = desk.office()
        assert [one["type"] for one in told if one["type"].startswith("user_")] == [
            "user_session_start",
            "user_summon",
            "user_wake",
            "user_session_end",
        ]
        assert of(told, "user_session_start")[0]["hasArtifactCatalog"] is True
        assert of(told, "session_start")[0]["demoMode"] is True
        assert of(told, "session_end")[0]["reason"] == "user_ended"
        assert len(of(told, "agent_registered")) == 4

    def test_a_message_goes_to_the_agent_in_a_seat_and_shows_its_speaker(self, desk: Desk) -> None:
        desk.summon()
        body = {
            "message": "How are you?",
            "targetAgent": "Lyra",
            "targetGridPosition": 1,
            "speakerName": "Ada",
        }
        status, answer = desk.server.post("/api/send", {"session": desk.session, **body})
        assert status == 202, answer
        desk.turn(answer["turn"])
        told = desk.office()
        [asked], [said] = of(told, "user_message"), of(told, "agent_message")
        assert (asked["targetAgent"], asked["speakerName"], said["agentName"]) == ("Orin", "Ada", "Orin")


class TestReplies:
    def test_a_message_of_claude_has_all_its_blocks_and_the_page_replaces_it(self, desk: Desk) -> None:
        desk.say("Write about ships")
        shown: dict[str, Any] = {}
        for one in of(desk.office(), "claude_text"):
            assert one["content"][: len(shown.get(one["messageId"], []))] == shown.get(one["messageId"], [])
            shown[one["messageId"]] = one["content"]
        kinds = [part["type"] for content in shown.values() for part in content]
        assert {"text", "tool_use"} <= set(kinds)
        said = [part["text"] for content in shown.values() for part in content if part["type"] == "text"]
        assert "\n".join(said) == words(desk.reader.events)

    def test_a_reader_of_any_cursor_gets_the_rest_of_the_same_messages(self, desk: Desk) -> None:
        for text in ("Hello", "Write about ships", "Hello again"):
            desk.say(text)
        desk.command("session.end")
        desk.until(typed("process.end"))
        desk.say("Hello")
        whole = desk.office()
        assert [one["type"] for one in whole].count("claude_system") == 2, "one for each process"
        for number, one in enumerate(whole[:-1]):
            assert (
                desk.told(lambda got: got["id"] == whole[-1]["id"], f"&after={one['id']}")
                == whole[number + 1 :]
            )


class TestTeam:
    def test_names_are_their_own_and_nobody_takes_the_middle(self, desk: Desk) -> None:
        desk.say("I want a team of eight")
        desk.summon()
        grid = desk.grid()
        assert sorted(grid) == list(range(9))
        assert (grid[0][0], grid[5][0], grid[4][0]) == ("Lyra", "Vesper", "Julian")
        ids = {one["id"] for one in desk.documents("agent-identity")}
        assert ids == {f"agent-identity:{seat}" for seat in (0, 1, 2, 3, 5, 6, 7, 8)}
        [team] = desk.state(include="roster")["roster"]
        assert [one and one["name"] for one in team["grid"]][:5] == ["Lyra", "Orin", "Wren", "Sable", None]

    def test_who_is_woken_keeps_its_soul_and_its_birth(self, desk: Desk) -> None:
        desk.summon()
        before = desk.state()["state"]["grid"][0]
        desk.command("session.end")
        desk.until(typed("process.end"))
        desk.command("wake", agents=[LYRA | KNOWN, GHOST])
        events = desk.turn()
        [joined] = bodies(events, "roster.join")
        now = desk.state()["state"]["grid"][0]
        assert (joined["soul"], now["soul"], now["born"]) == (before["soul"], before["soul"], before["born"])
        assert {seat: state for seat, (_, state) in desk.grid().items()} == {
            0: "alive",
            1: "sleeping",
            2: "sleeping",
            4: "alive",
        }

    def test_the_state_shows_artifacts_screen_and_work(self, desk: Desk) -> None:
        a_day(desk)
        state = desk.state()["state"]
        assert "memory/notes/ships.html" in state["artifacts"]
        assert (state["face"], state["screen"][-1]) == ("happy", "FACE happy")
        assert state["offers"] == [{"agent": "Orin", "jobs": ["librarian"]}]
        assert set(state["form"]) == {"description", "skills"}

    def test_the_log_tells_it_again(self, desk: Desk) -> None:
        a_day(desk)
        seen = durable(desk.reader.events)
        again = replayed(desk.server, desk.session, seen[-1]["seq"])
        assert durable(again) == seen
        shown = desk.state()
        assert desk.state(at=str(seen[-1]["seq"])) == shown


def test_the_console_reads_typed_events_and_nothing_else(server: Server) -> None:
    """It takes apart neither what the model wrote nor the stream: the client hands it events."""
    source = "".join(path.read_text() for path in sorted(CONSOLE.rglob("*.js")))
    assert "../client/" in source
    for word in ("AGENT_", "file_path", "3848", "EventSource", "getReader", "TextDecoder"):
        assert word not in source
    served = [server.get(file.path)[1].decode() for file in console_routes() if file.path.endswith(".js")]
    for word in ("AGENT_", "file_path", "3848"):
        assert word not in "".join(served)
