"""Who looks at the example `office` in the tests: a page with one session, and readers of its dialect."""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.examples import read
from tests.e2e.harness import Reader, Server, running

APPS = "tests.e2e.office_apps:"
OFFICE = "&dialect=office"


@contextlib.contextmanager
def serving(folder: Path, app: str = "app", port: int = 0, options: Sequence[str] = ()) -> Iterator[Server]:
    """The office on a log in a folder."""
    os.environ["OFFICE_FOLDER"] = str(folder / "office")
    with running(APPS + app, folder, port, options=options) as server:
        yield server


@dataclass
class Desk:
    """A page with one session: what happens in it, as it comes."""

    server: Server
    session: str
    reader: Reader

    @classmethod
    def at(cls, server: Server) -> "Desk":
        session = server.session()
        return cls(server, session, Reader(server, session))

    def moved(self, server: Server) -> None:
        """Go on with another server process."""
        self.server = self.reader.server = server

    def say(self, text: str, target: str | None = None) -> list[Any]:
        """Write something; everything up to the end of the turn."""
        sent = {"session": self.session, "message": text} | ({"targetAgent": target} if target else {})
        status, answer = self.server.post("/api/send", sent)
        assert status == 202, answer
        return self.turn(answer["turn"])

    def turn(self, trace: str | None = None) -> list[Any]:
        """Everything up to the end of a turn, or of the next one."""
        return self.until(lambda event: over_in(event, trace))

    def until(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Everything up to a wanted event."""
        return read(
            self.reader, lambda message: message.event == "message" and wanted(json.loads(message.data))
        )

    def command(self, kind: str, **fields: Any) -> tuple[int, Any]:
        payload = {"command": {"kind": kind, **fields}}
        return self.post("ui.command", payload)

    def post(self, type: str, payload: Any) -> tuple[int, Any]:
        body = {"session": self.session, "events": [{"type": type, "payload": payload}]}
        return self.server.post("/api/events", body)

    def summon(self) -> list[Any]:
        assert self.command("summon")[0] == 202
        return self.turn()

    def decide(self, asked: Any, decision: str) -> tuple[int, Any]:
        about = {"call_id": asked["call_id"], "args_hash": asked["args_hash"], "decision": decision}
        return self.post("approval.decision", about)

    def state(self, **query: str) -> Any:
        extra = "".join(f"&{name}={value}" for name, value in query.items())
        status, answer = self.server.get(f"/api/state?session={self.session}{extra}")
        assert status == 200, answer
        return answer

    def grid(self, at: int | None = None) -> dict[int, tuple[str, str]]:
        """Who sits where, and how; Julian too."""
        members = self.state(**({} if at is None else {"at": str(at)}))["state"]["grid"]
        return {seat: (one["name"], one["state"]) for seat, one in enumerate(members) if one}

    def documents(self, type: str = "") -> list[Any]:
        wanted = f"&type={type}" if type else ""
        status, answer = self.server.get(f"/api/documents?session={self.session}{wanted}")
        assert status == 200, answer
        return list(answer["documents"])

    def office(self) -> list[Any]:
        """What a reader of `office` gets of all that this desk has seen; it has seen an end last."""
        last = self.reader.events[-1]["seq"]
        return self.told(lambda message: message["id"] == last)

    def told(self, wanted: Callable[[Any], bool], query: str = "") -> list[Any]:
        """What a reader of `office` gets, up to a wanted message."""
        reader = Reader(self.server, self.session, OFFICE + query)
        return read(reader, lambda message: message.event == "message" and wanted(json.loads(message.data)))


def over_in(event: Any, trace: str | None) -> bool:
    """Whether this ends a turn of the main agent."""
    ended = event["type"] == "agent.end" and event["depth"] == 0
    return bool(ended and trace in (None, event["trace_id"]))


def typed(type: str, **fields: Any) -> Callable[[Any], bool]:
    """A condition: an event or a message of this type, with these fields in its payload."""
    return lambda event: event["type"] == type and fields.items() <= event.get("payload", fields).items()


def of(events: list[Any], type: str) -> list[Any]:
    return [event for event in events if event["type"] == type]


def bodies(events: list[Any], type: str) -> list[Any]:
    return [event["payload"] for event in of(events, type)]


def words(events: list[Any]) -> str:
    """What was said, one text after the other."""
    return "\n".join(body["text"] for body in bodies(events, "assistant.message"))


def unended(events: list[Any]) -> list[Any]:
    """The agents, blocks and calls without an end, and those with two."""
    counts: Counter[tuple[str, Any]] = Counter()
    for event in events:
        body, agent = event["payload"], event.get("agent_id")
        kind, _, what = event["type"].partition(".")
        if event["type"] in ("agent.start", "agent.end"):
            counts[kind, agent] += 1 if what == "start" else 100
        elif event["type"] in ("block.start", "block.end"):
            counts[kind, body["block_id"]] += 1 if what == "start" else 100
        elif event["type"] in ("tool.call", "tool.result"):
            counts[kind, body["call_id"]] += 1 if what == "call" else 100
        elif event["type"] in ("process.start", "process.end"):
            counts[kind, (body["process"], body.get("pid"))] += 1 if what == "start" else 100
    return [key for key, count in counts.items() if count != 101]
