"""The agent: a loop of its own with two tools, as an `AgentRunner`. This is all that a worker needs.

Its state is what it has promised to do: the order whose refund waits for an approval.
"""

import asyncio
import json
import re
from typing import Any

from turnlog.adapters import Approved, Finished, Part, PartOutput, Paused, Question
from turnlog.parse import AgentInfo
from turnlog_examples.support.team import NAME

ORDERS = {"17": "on its way, and will arrive tomorrow", "18": "delivered"}
FIND_CALL = "call_find"  # an agent makes each of them once in a turn
REFUND_CALL = "call_refund"


class Clerk:
    """Answers questions about orders. `pace_s` is the time of a word."""

    name = NAME
    source = "clerk"
    version = "1"

    def __init__(self, pace_s: float = 0.0) -> None:
        self._pace_s = pace_s

    def can_read(self, version: str) -> bool:
        return version == self.version

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        return AgentInfo(self.name, "script", ("find_order", "refund"))

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        if part.message is None:
            return await self._refund(part, output)
        order = re.search(r"\d+", part.message)
        if order is None:
            await self._say(output, "Name an order, and I will look: order 17, for example.")
            return Finished()
        is_known = await self._find(output, order[0])
        if not is_known:
            await self._say(output, f"There is no order {order[0]}.")
        elif "refund" in part.message.lower():
            return await self._ask(output, order[0])
        else:
            await self._say(output, f"Order {order[0]} is {ORDERS[order[0]]}.")
        return Finished()

    async def _find(self, output: PartOutput, order: str) -> bool:
        await self._call(output, "find_order", {"order": order}, FIND_CALL)
        status = ORDERS.get(order)
        await output.report(output.builder.result, output.root, FIND_CALL, {"status": status})
        return status is not None

    async def _ask(self, output: PartOutput, order: str) -> Paused:
        await self._say(output, f"I can refund order {order}.")
        await self._call(output, "refund", {"order": order}, REFUND_CALL)
        return Paused(json.dumps({"order": order}).encode(), [Question(output.root, REFUND_CALL)])

    async def _refund(self, part: Part, output: PartOutput) -> Finished:
        """Go on after the answer: perhaps another process has asked."""
        order = json.loads(part.state or b"{}").get("order", "")
        if isinstance(part.answer_to((output.root.agent_id, REFUND_CALL)), Approved):
            await output.report(output.builder.result, output.root, REFUND_CALL, {"refunded": order})
            await self._say(output, f"Order {order} is refunded.")
        else:
            await self._say(output, f"Then I leave order {order} as it is.")
        return Finished()

    async def _call(self, output: PartOutput, tool: str, args: dict[str, Any], call_id: str) -> None:
        await output.report(output.builder.call, output.root, tool, args, call_id)
        await output.report(output.builder.complete_message, output.root)

    async def _say(self, output: PartOutput, text: str) -> None:
        for word in re.findall(r"\S+\s*", text):
            await output.report(output.builder.text, output.root, word)
            await asyncio.sleep(self._pace_s)
