"""`turnlog demo` as a person uses it: the link, every message worth trying, the broker's guide, the end."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_desk import raw, timeless
from tests.e2e.examples import over, read
from tests.e2e.harness import ROOT, Reader, Server, kind
from tests.e2e.test_crash import NOTHING, open_things
from tests.support.limits import HANG_S
from turnlog.cli.demo import API_KEY_VARIABLE, DEMO_NAMES
from turnlog_examples import assistant, broker, pipeline, shop, support, weights
from turnlog_examples.office import team as office

LAST = "Other applications: "
GIVEN = {
    "assistant": assistant.team.TRIES,
    "pipeline": pipeline.team.TRIES,
    "weights": weights.team.TRIES,
    "broker": broker.TRIES,
    "office": office.TRIES,
    "support": support.TRIES,
    "shop": shop.TRIES,
}
TRIES = [(app, words) for app, tries in GIVEN.items() for words in tries]
RESTS = over, kind("tool.await"), kind("approval.request")


@dataclass
class Demo(Server):
    """A demo that runs, as who followed its link sees it."""

    cookie: str = ""
    said: list[str] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"cookie": self.cookie}

    def follow(self) -> tuple[int, str]:
        """Follow the link; where it leads."""
        status, _, headers = raw(self, self.link.removeprefix(self.url), None, {})
        self.cookie = self.cookie or (headers.get("set-cookie") or "").partition(";")[0]
        return status, headers.get("location") or ""

    def made(self, app: str) -> str:
        """A session of an application."""
        status, answer = self.post("/api/sessions", {"app": app})
        assert status == 201, answer
        return str(answer["session_id"])

    def told(self, path: str) -> Any:
        status, answer = self.get(path)
        assert status == 200, answer
        return answer


@dataclass
class Page:
    """A session as it is watched."""

    server: Demo
    session: str
    reader: Reader

    @classmethod
    def of(cls, server: Demo, app: str) -> "Page":
        session = server.made(app)
        return cls(server, session, Reader(server, session))

    def say(self, words: str, channel: str | None = None) -> None:
        body = {"session": self.session, "message": words} | ({"channel": channel} if channel else {})
        status, answer = self.server.post("/api/send", body)
        assert status == 202, answer

    def post(self, type: str, payload: Any) -> None:
        events = [{"type": type, "payload": payload}]
        status, answer = self.server.post("/api/events", {"session": self.session, "events": events})
        assert status == 202, answer

    def finished(self) -> list[Any]:
        """The events up to the end of the turn; whatever it asks is answered with yes."""
        events = read(self.reader, lambda message: any(rests(message) for rests in RESTS))
        last = events[-1]["payload"]
        if events[-1]["type"] == "tool.await":
            [call] = last["calls"]
            answer = {
                "call_id": call["call_id"],
                "tool": call["tool"],
                "ok": True,
                "result": True,
                "error": None,
            }
            self.post("tool.result", answer)
        elif events[-1]["type"] == "approval.request":
            asked = {"call_id": last["call_id"], "args_hash": last["args_hash"]}
            self.post("approval.decision", asked | {"decision": "approve"})
        else:
            return events
        return events + self.finished()

    def click(self, button: str) -> list[Any]:
        """Click a button of the broker's view; what comes of it."""
        action = {"kind": "button.click", "button_id": button}
        self.post("ui.action", {"action": action, "view_id": "decision"})
        return self.finished()

    @property
    def state(self) -> Any:
        return self.server.told(f"/api/state?session={self.session}")["state"]


@contextlib.contextmanager
def running(*arguments: str, **env: str) -> Iterator[Demo]:
    """The command in a process of its own; stopped at the end if it still runs."""
    command = [sys.executable, "-m", "tests.e2e.demo_stage", "demo", *arguments]
    known = {
        name: value for name, value in os.environ.items() if name not in (API_KEY_VARIABLE, "TURNLOG_TOKEN")
    } | env
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=known)
    assert process.stdout is not None
    try:
        said: list[str] = []
        while not said or not said[-1].startswith(LAST):
            said.append(process.stdout.readline().rstrip("\n"))
            assert process.poll() is None, said
        port = int(said[0].split("127.0.0.1:")[1].split("/")[0])
        yield Demo(process, port, said[1].rpartition(" ")[2], said=said)
    finally:
        process.terminate()
        process.wait(HANG_S)
        process.stdout.close()


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with running("pipeline", "--no-browser") as server:
        assert server.follow()[0] == 303
        yield server


@pytest.fixture(scope="module")
def pages(demo: Demo) -> dict[tuple[str, str], Page]:
    """Every message that the applications propose, each in a session of its own, all at once."""
    opened = {(app, words): Page.of(demo, app) for app, words in TRIES}
    for (_, words), page in opened.items():
        page.say(words)
    return opened


def outcome(app: str, events: list[Any]) -> list[str]:
    """What comes of a turn: texts, views and events of the application, whatever day it is."""
    kinds = ("assistant.message", "assistant.view", f"{app}.")
    came = [
        str(event["payload"].get("text", event["payload"]))
        for event in events
        if event["type"].startswith(kinds)
    ]
    return [re.sub(r"\d{4}-\d\d-\d\d", "", text) for text in came]


@pytest.fixture(scope="module")
def outcomes(pages: dict[tuple[str, str], Page]) -> dict[tuple[str, str], list[Any]]:
    return {}


@pytest.mark.parametrize(("app", "words"), TRIES)
def test_what_is_worth_trying_ends_in_an_answer(
    app: str, words: str, pages: dict[tuple[str, str], Page], outcomes: dict[tuple[str, str], list[Any]]
) -> None:
    events = pages[app, words].finished()
    assert open_things(pages[app, words].reader.events) == NOTHING
    assert events[-1]["payload"]["stop_reason"] == "end_turn"
    seen = outcomes[app, words] = outcome(app, events)
    assert seen
    others = [other for (name, tried), other in outcomes.items() if name == app and tried != words]
    assert seen not in others, "another message has another outcome"


def test_the_link_leads_to_a_session_of_the_named_system_and_the_others_are_there(demo: Demo) -> None:
    with running("broker", "--no-browser") as server:
        status, place = server.follow()
        assert (status, server.follow()[0]) == (303, 403)
        listed = server.told("/api/sessions")["sessions"]
        apps = server.told("/api/apps")["apps"]
        assert [app["name"] for app in apps] == ["broker", *[name for name in DEMO_NAMES if name != "broker"]]
        assert sorted(one["app"] for one in listed) == sorted(DEMO_NAMES)
        [first] = [one["session_id"] for one in listed if one["app"] == "broker"]
        assert place == f"/?session={first}"
        assert [line.strip() for line in server.said[3:-1]] == list(broker.TRIES)
        assert all(app["title"] in server.said[-1] for app in apps[1:])
        log = raw(server, f"/api/log?session={first}", None, server.headers)[1]
        assert b"process." not in log, "nothing runs in it yet"


# the guide of the broker, word for word

GUIDE = broker.app.guide
INSTALLER, CUSTOMER = (
    re.findall(r"\*\*(.+?)\*\*", part)
    for part in re.findall(r"^\d\. (?:installer|customer): (.*(?:\n   .*)*)", GUIDE, re.M)
)
ENDS = {
    "as it stands": ({}, ["grant", "confirm"], "selected"),
    "I rent": ({"Yes, all of it": "I rent"}, [], "ineligible"),
    "24 months": (
        {"10 years": "24 months"},
        ["grant", "confirm", "refuse_offer_1", "accept_offer_2"],
        "selected",
    ),
    "£10,900 a year": ({"£41,000 a year": "£10,900 a year"}, ["grant", "confirm"], "declined"),
    "I withdraw": ({"No, nothing": "I withdraw"}, [], "withdrawn"),
    "not agreed": ({}, ["refuse", "leave"], "withdrawn"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_guide_of_the_broker_leads_to_every_end(end: str, demo: Demo) -> None:
    changes, clicks, status = ENDS[end]
    assert not changes or f"**{end}**" in GUIDE
    page = Page.of(demo, "broker")
    for channel, lines in (("installer", INSTALLER), ("customer", CUSTOMER)):
        for line in lines:
            for before, after in changes.items():
                line = line.replace(before, after)
            page.say(line, channel)
            page.finished()
            if page.state["status"] in ("ineligible", "withdrawn"):
                break
    for button in clicks:
        events = page.click(button)
        assert {event.get("channel") for event in events} == {"customer"}, "the customer's guide answers"
    assert page.state["status"] == status
    again = Reader(demo, page.session)
    read(again, lambda message: message.id == page.reader.last_id)
    assert [event["id"] for event in again.events] == [
        event["id"] for event in page.reader.events if event["type"] != "block.delta"
    ]


def test_a_click_on_what_is_not_asked_any_more_means_nothing(demo: Demo) -> None:
    page = Page.of(demo, "broker")
    for channel, lines in (("installer", INSTALLER), ("customer", CUSTOMER)):
        for line in lines:
            page.say(line, channel)
            page.finished()
    assert page.state["page"] == {"shows": "consent"}
    consent = {"consentType": "credit_search", "granted": False}
    status, _ = demo.post(
        "/api/chat/customer",
        {"sessionId": page.session, "directEvents": [{"type": "capture_consent", "data": consent}]},
    )
    assert status == 200
    before = timeless(page.state)
    action = {"kind": "button.click", "button_id": "refuse"}
    late = {"type": "ui.action", "payload": {"action": action, "view_id": "decision"}}
    assert demo.post("/api/events", {"session": page.session, "events": [late]})[0] == 400
    assert timeless(page.state) == before


# the end


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(") ")[2].split()[1])
            found += [int(stat.parent.name)] if parent == pid else []
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_nothing_is_left_running(number: int, tmp_path: Path) -> None:
    with running("--no-browser", TMPDIR=str(tmp_path)) as server:
        server.follow()
        page = Page.of(server, "office")
        page.say("Good morning")
        page.finished()
        left = {pid: os.pidfd_open(pid) for pid in children(server.process.pid)}
        assert len(left) == 4, "executor, worker, the agent of the shop, the process of the office"
        server.process.send_signal(number)
        code = server.process.wait(HANG_S)
        for handle in left.values():
            assert select.select([handle], [], [], HANG_S)[0]
            os.close(handle)
        assert code == (-number if number == signal.SIGKILL else 0)
        assert number == signal.SIGKILL or list(tmp_path.iterdir()) == []


def test_the_browser_is_opened_where_the_link_leads(tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    with running("weights", BROWSER=f"{browser} %s") as server:
        assert server.follow()[0] == 303  # it is there: the browser was opened before
        assert opened.read_text().strip() == server.link
