"""What one body may cost: the number of events in it, and where a large one is decoded."""

import threading
from typing import Any

import pytest

from tests.security.apps import plain
from tests.security.desk import desk, run
from turnlog.events import gate
from turnlog.server.body import INLINE_BYTES
from turnlog.server.routes import MAX_EVENTS

NOTE = {"type": "case.note", "payload": {"text": "milk"}}


def test_body_with_more_events_than_allowed_is_refused_whole() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada", "plain")
            before = await at.log("ada", session)

            answer = await at.post(
                "ada", "/api/events", {"session": session, "events": [NOTE] * (MAX_EVENTS + 1)}
            )

            assert answer.status == 400
            assert "events" in answer.value["error"]
            assert await at.log("ada", session) == before

    run(scenario())


@pytest.mark.parametrize(("size", "is_inline"), [(100, True), (INLINE_BYTES + 1, False)])
def test_body_above_the_limit_is_decoded_outside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, size: int, is_inline: bool
) -> None:
    threads = []
    decode = gate.decode

    def recording(data: bytes, kind: type[Any]) -> Any:
        threads.append(threading.current_thread())
        return decode(data, kind)

    monkeypatch.setattr(gate, "decode", recording)

    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada", "plain")
            threads.clear()
            await at.post("ada", "/api/send", {"session": session, "message": "m" * size})
            assert [thread is threading.main_thread() for thread in threads] == [is_inline]

    run(scenario())
