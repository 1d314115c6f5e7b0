"""`GET /api/events?turn=` of a turn that is over: it costs what the turn has, not what came after it."""

import pytest
from starlette.testclient import TestClient

from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import LOCAL
from turnlog.log import Row
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.streaming.frames import FramePosition
from turnlog.server.streaming.turn_response import TurnResponse


def count_rows(later_turns: int, query: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, bytes]:
    """Read the first of some turns; return how many rows were looked at, and the end of the answer."""
    rows: list[int] = []
    tell = TurnResponse._frames_for

    async def counted(turn: TurnResponse, row: Row, seen: FramePosition) -> list[bytes]:
        rows.append(row.seq)
        return await tell(turn, row, seen)

    app = App("plain", Agent("Clerk", "", Scripted(lambda _: ["Good day."])))
    server = create_app(app, "memory:", auth=BuiltinAuth(b"k" * 32, {hash_token("t"): LOCAL}))
    headers = {"authorization": "Bearer t"}
    with TestClient(server, base_url="http://localhost", headers=headers) as client:
        session = client.post("/api/sessions", json={}).json()["session_id"]
        turns = []
        for _ in range(1 + later_turns):
            sent = client.post("/api/send", json={"session": session, "message": "hello"}).json()
            turns.append(f"/api/events?session={session}&turn={sent['turn']}{query}")
            client.get(turns[-1])  # a response ends with its turn
        with monkeypatch.context() as patch:
            patch.setattr(TurnResponse, "_frames_for", counted)
            answer = client.get(turns[0]).content
    return len(rows), answer.strip().rpartition(b"\n")[2]


@pytest.mark.parametrize("query", ["", "&dialect=blocks", "&dialect=agentic", "&types=agent"])
def test_turn_that_is_over_is_read_to_its_own_end(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few, done = count_rows(2, query, monkeypatch)
    many, also_done = count_rows(8, query, monkeypatch)
    assert few == many > 0
    assert done == also_done == b"data: [DONE]"
