"""The conversation in `meta_init` and `meta_final` is encoded once, in each of the three dialects."""

from typing import Any

import msgspec
import pytest

from tests.support.written_logs import entry, scope
from turnlog.events import AgentEnd, AgentStart, Payload
from turnlog.state.history import Message
from turnlog.wire.dialects import _common as common_module
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.dialects.blocks import Blocks
from turnlog.wire.dialects.blocks_raw import BlocksRaw
from turnlog.wire.dialects.blocks_xml import BlocksXml

TEXT = "x" * 100_000
HISTORY = [Message("user", [{"type": "text", "text": TEXT}])]
WITH_HISTORY = DialectOptions(stream_meta_history_and_tool_results=True)


class CountingJson:
    """The JSON of msgspec, counting the bytes that are encoded and decoded."""

    def __init__(self) -> None:
        self.count = 0

    def encode(self, value: object) -> bytes:
        body = msgspec.json.encode(value)
        self.count += len(body)
        return body

    def decode(self, body: Any) -> Any:
        self.count += len(body)
        return msgspec.json.decode(body)


class CountingMsgspec:
    def __init__(self) -> None:
        self.json = CountingJson()

    def __getattr__(self, name: str) -> Any:
        return getattr(msgspec, name)


@pytest.mark.parametrize("kind", [Blocks, BlocksXml, BlocksRaw])
@pytest.mark.parametrize(
    "payload", [AgentStart(name="A", via="prompt"), AgentEnd(stop_reason="end_turn")], ids=["start", "end"]
)
def test_dialect_with_a_long_history_encodes_it_once(
    monkeypatch: pytest.MonkeyPatch, kind: Any, payload: Payload
) -> None:
    counting = CountingMsgspec()
    for module in (common_module, __import__(kind.__module__, fromlist=["msgspec"])):
        monkeypatch.setattr(module, "msgspec", counting)
    messages = kind(WITH_HISTORY, lambda agent_id: HISTORY).convert(*entry(payload, scope("agt_1")))
    assert len(b"".join(messages)) > len(TEXT)
    assert counting.json.count < 1.1 * len(TEXT)
