"""An example whose server is killed in the middle of a turn and started again on the same log."""

from pathlib import Path
from typing import Any

from tests.e2e.examples import durable, emptied, over, read, replayed, standing
from tests.e2e.harness import Reader, kind, running
from tests.e2e.test_crash import NOTHING, open_things


def kill_and_continue(app: str, folder: Path, message: str, moment: tuple[str, str]) -> list[Any]:
    """Kill the server at a moment of a turn; return all events up to the end of the turn.

    Check that the state before the kill is as it was, that the turn goes on and ends once, and that a reader
    who comes later gets the durable events that this one got.
    """
    with running(app, folder) as server:
        session = server.session()
        reader = Reader(server, session)
        turn = server.send(session, message)["turn"]
        read(reader, kind(*moment))
        before, port = standing(server, session), server.port
        assert before["open"]["agents"], "it was in mid-turn"
        server.kill()
    emptied(folder)
    with running(app, folder, port) as server:
        reader.server = server
        read(reader, over)
        assert standing(server, session, before["seq"]) == before
        assert open_things(reader.events) == NOTHING
        assert {event["trace_id"] for event in reader.events if "agent_id" in event} == {turn}
        assert durable(replayed(server, session, reader.events[-1]["seq"])) == durable(reader.events)
    return reader.events
