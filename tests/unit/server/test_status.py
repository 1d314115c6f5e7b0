"""Which status an error of the store has: a full store is 507, one that has stopped is 503."""

import json

import pytest

from tests.unit.log.delegates import scenario
from turnlog.errors import SessionDamaged, StoreError, Unavailable
from turnlog.log import Log, MemoryStore
from turnlog.server.error_responses import STORE_FAILED_MESSAGE, error_response


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (Unavailable("the session's driver is not running; try again"), 503, "1"),
        (StoreError("the disk is full"), 507, None),
        (SessionDamaged("sess_1", 1, 2, "lost"), 507, None),
    ],
)
def test_refusal_of_a_store_error_has_its_status(
    error: StoreError, status: int, retry_after: str | None
) -> None:
    answer = error_response(error)
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry_after)


def test_text_of_a_store_is_for_the_log_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    text = "the log cannot be used: permission denied for table session"
    answer = error_response(StoreError(text))
    assert json.loads(bytes(answer.body)) == {"error": STORE_FAILED_MESSAGE}
    assert caplog.messages == [f"the log failed: {text}"]

    answer = error_response(SessionDamaged("sess_1", 1, 2, "lost"))
    assert json.loads(bytes(answer.body)) == {"error": "sess_1 is damaged at seq 1 to 2: lost"}


@scenario
async def test_log_after_close_raises_unavailable() -> None:
    log = Log(MemoryStore())
    session = await log.create("t")
    await log.close()
    with pytest.raises(Unavailable, match="the log is closed"):
        await log.info(session)
    with pytest.raises(Unavailable, match="the log is closed"):
        await log.append(session, [])
