"""Sessions in every state that a screen of the console can show, and the server that has them."""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.examples import over, read
from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.weights_desk import executing
from turnlog.wire.sse import ServerSentEvent

APPS = [f"tests.e2e.screen_apps:{name}" for name in ("briefing", "checks", "entries", "loans", "trips")]
OFFICE = "tests.e2e.office_apps:demo"
INSTALLER = ("£12,500, no deposit, panels with a battery, 4 kWp", "Sarah O'Neil, 07700 900 123")
CUSTOMER = (
    "Hello",
    "Yes, I understand",
    "Yes, all of it",
    "10 years",
    "No copy",
    "Sarah O'Neil, employed, £41,000 a year, £900 a month",
    "No, nothing",
)


@dataclass
class Talk:
    """A session, and who talks in it."""

    server: Server
    session: str
    reader: Reader

    @classmethod
    def of(cls, server: Server, app: str, title: str | None = None) -> "Talk":
        status, answer = server.post("/api/sessions", {"app": app, "title": title})
        assert status == 201, answer
        session = str(answer["session_id"])
        return cls(server, session, Reader(server, session))

    def say(
        self, text: str, until: Callable[[ServerSentEvent], bool] = over, channel: str | None = None
    ) -> "Talk":
        """Say something, and wait for what comes of it."""
        body = {"session": self.session, "message": text} | ({"channel": channel} if channel else {})
        status, answer = self.server.post("/api/send", body)
        assert status == 202, answer
        return self.wait(until)

    def wait(self, until: Callable[[ServerSentEvent], bool] = over) -> "Talk":
        read(self.reader, until)
        return self

    def post(self, type: str, payload: Any, until: Callable[[ServerSentEvent], bool] = over) -> "Talk":
        body = {"session": self.session, "events": [{"type": type, "payload": payload}]}
        status, answer = self.server.post("/api/events", body)
        assert status == 202, answer
        return self.wait(until)

    def act(self, view: str, action: dict[str, Any]) -> "Talk":
        return self.post("ui.action", {"view_id": view, "action": action})

    def stop(self) -> "Talk":
        assert self.server.post("/api/stop", {"session": self.session})[0] in (200, 202)
        return self.wait()

    def seq(self, type: str, text: str = "") -> int:
        """The last event of a type that has a text in it."""
        found = [
            event for event in self.reader.events if event["type"] == type and text in str(event["payload"])
        ]
        return int(found[-1]["seq"])


ASKS = kind("tool.await")


def fresh(server: Server) -> Talk:
    return Talk.of(server, "assistant")


def briefing(server: Server) -> Talk:
    return Talk.of(server, "assistant").say("Can we fly from Göreme?", ASKS)


def everything(server: Server) -> Talk:
    talk = Talk.of(server, "trips").say("Plan a weekend in Bergen")
    talk.say("Look for ferries on Sunday", kind("tool.progress"))
    return talk.say("And one for the bicycle", kind("ui.message"))


def question(server: Server) -> Talk:
    return Talk.of(server, "trips").say("Ask about the walk", ASKS)


def fields(server: Server) -> Talk:
    return Talk.of(server, "trips").say("Add somebody", ASKS)


def ends(server: Server) -> Talk:
    talk = Talk.of(server, "trips").say("Break the journey")
    return talk.say("Look for ferries on Sunday", kind("tool.progress")).stop()


def form(server: Server) -> Talk:
    talk = Talk.of(server, "weights").say("Weigh-in 187.6 today")
    values = {"measured_at": "2026-01-08", "weight_lbs": -5, "notes": "after breakfast"}
    return talk.act("view_weight_entry", {"kind": "form.submit", "form_id": "weight_entry", "values": values})


def table(server: Server) -> Talk:
    talk = Talk.of(server, "weights").say("85 kg yesterday, after breakfast; 84.5 kg today")
    rows = [
        {"measured_at": f"2026-01-0{day}T07:30:00-05:00", "weight_lbs": lbs, "notes": notes}
        for day, lbs, notes in [(5, 188.2, ""), (6, 187.9, "after breakfast"), (7, 187.1, ""), (8, 186.6, "")]
    ]
    return talk.act("view_weight_entries", {"kind": "table.save", "table_id": "weight_entries", "rows": rows})


def loan(server: Server) -> Talk:
    talk = Talk.of(server, "broker", "Panels for Sarah O'Neil")
    for channel, lines in (("installer", INSTALLER), ("customer", CUSTOMER)):
        for line in lines:
            talk.say(line, channel=channel)
    return talk


def team(server: Server) -> Talk:
    talk = Talk.of(server, "office").say("I want a team of eight")
    talk.post("ui.command", {"command": {"kind": "summon"}})
    talk.say("Write about ships")
    return talk.say("Delete it", kind("approval.request"))


TALKS = (fresh, briefing, everything, question, fields, ends, form, table, loan, team)


def held(server: Server) -> dict[str, Talk]:
    """All of them, held at once."""
    with ThreadPoolExecutor(len(TALKS)) as pool:
        talks = pool.map(lambda talk: talk(server), TALKS)
        return {talk.__name__: held for talk, held in zip(TALKS, talks, strict=True)}


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """All applications on a log in a folder, with the executor of one of them."""
    os.environ["OFFICE_FOLDER"] = str(folder / "office")
    with running(APPS[0], folder, options=(*APPS[1:], OFFICE)) as server, executing(server, folder):
        yield server
