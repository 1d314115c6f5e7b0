"""An example whose server is killed in the middle of a turn and started again on the same log."""

from pathlib import Path
from typing import Any

from tests.e2e.examples import durable, emptied, over, read, replayed, standing
from tests.e2e.harness import Reader, kind, running
from tests.e2e.test_crash import NOTHING, open_things


def kill_and_continue(
    app: str, folder: Path, messages: tuple[str, str], moment: tuple[str, str]
) -> tuple[list[Any], list[Any]]:
    """Kill the server at a moment of the first message's turn; return all events, and those of the second.

    Check that what was open is closed by events, that the state before the kill is as it was, and that
    a reader who comes later gets the durable events that this one got.
    """
    first, second = messages
    with running(app, folder) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, first)
        read(reader, kind(*moment))
        before, port = standing(server, session), server.port
        assert before["open"]["agents"], "it was in mid-turn"
        server.kill()
    emptied(folder)
    with running(app, folder, port) as server:
        reader.server = server
        read(reader, kind("process.start"))
        assert open_things(reader.events) == NOTHING
        assert standing(server, session, before["seq"]) == before
        server.send(session, second)
        events = read(reader, over)
        assert open_things(reader.events) == NOTHING
        assert durable(replayed(server, session, events[-1]["seq"])) == durable(reader.events)
    return reader.events, events
