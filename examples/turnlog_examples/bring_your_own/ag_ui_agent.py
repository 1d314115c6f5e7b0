"""An agent that speaks AG-UI over HTTP, with a sub-agent and an approval, served by Turnlog.

The lines with `# turnlog` are all that is new: the agent is whatever answers at the URL, in any language.
First its server, then Turnlog, both in this folder:

    uvicorn ag_ui_agent:agent --port 8000
    turnlog serve ag_ui_agent:app

The agent here is written by hand and calls no model: it shows what AG-UI servers send.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from os import environ
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from turnlog import App, adapters  # turnlog

Event = dict[str, Any]
ORDERS = {"A-17": "Ada", "B-4": "Grace"}  # who ordered what
PACE_S = 0.03  # between two events: as fast as a model


def say(message_id: str, text: str, **owner: str) -> list[Event]:
    words = re.findall(r"\S+\s*", text)
    events = [{"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"}]
    events += [{"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": word} for word in words]
    events.append({"type": "TEXT_MESSAGE_END", "messageId": message_id})
    return [event | owner for event in events]


def call(call_id: str, tool: str, arguments: Event) -> list[Event]:
    return [
        {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": tool},
        {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": json.dumps(arguments)},
        {"type": "TOOL_CALL_END", "toolCallId": call_id},
    ]


def result(call_id: str, content: str) -> Event:
    message_id = f"{call_id}_result"
    return {"type": "TOOL_CALL_RESULT", "messageId": message_id, "toolCallId": call_id, "content": content}


def begin(run_id: str, text: str) -> tuple[list[Event], list[Event]]:
    """Ask the researcher, and stop before a refund: a person decides. Return events and interrupts."""
    order = find_order(text)
    is_refund = "refund" in text.lower() and order in ORDERS
    found = f"{ORDERS[order]} ordered it." if order in ORDERS else "There is no such order."
    ask_id, refund_id = f"{run_id}_ask", f"{run_id}_refund"
    child = {"subagentRunId": f"{run_id}_researcher"}
    events = [
        *say(f"{run_id}_first", "Let me look. "),
        *call(ask_id, "ask_researcher", {"question": f"Who ordered {order or 'what'}?"}),
        *(call(refund_id, "refund", {"order": order}) if is_refund else []),
        {"type": "SUBAGENT_STARTED", "name": "Researcher", "parentToolCallId": ask_id, **child},
        *say(f"{run_id}_found", found, **child),
        {"type": "SUBAGENT_FINISHED", **child},
        result(ask_id, found),
    ]
    if is_refund:
        return events, [{"id": refund_id, "reason": "tool_call", "toolCallId": refund_id}]
    return [*events, *say(f"{run_id}_last", f"I asked the researcher: {found}")], []


def go_on(run_id: str, text: str, answer: Event) -> list[Event]:
    """Refund, if a person said yes to the interrupt, whose id is that of the call."""
    is_approved = answer.get("payload", {}).get("approved") is True
    last_words = "The order is handled." if is_approved else "I leave the order as it is."
    done = f"refunded {find_order(text)}" if is_approved else "not refunded"
    return [result(answer["interruptId"], done), *say(f"{run_id}_last", last_words)]


def find_order(text: str) -> str:
    order = re.search(r"[A-Z]-\d+", text)
    return order[0] if order else ""


def read_last_text(messages: list[Event]) -> str:
    """Return what the user wrote last. A message with files has a list of parts."""
    content = [message["content"] for message in messages if message["role"] == "user"][-1]
    return str(content if isinstance(content, str) else content[0]["text"])


async def run(request: Request) -> StreamingResponse:
    body = await request.json()
    text = read_last_text(body["messages"])
    ids = {"threadId": body["threadId"], "runId": body["runId"]}
    interrupts: list[Event] = []
    if body.get("resume"):
        events = go_on(body["runId"], text, body["resume"][0])
    else:
        events, interrupts = begin(body["runId"], text)
    outcome = {"type": "interrupt", "interrupts": interrupts} if interrupts else {"type": "success"}

    async def stream() -> AsyncIterator[str]:
        start = {"type": "RUN_STARTED", **ids}
        end = {"type": "RUN_FINISHED", **ids, "outcome": outcome}
        for event in (start, *events, end):
            yield f"data: {json.dumps(event)}\n\n"
            await asyncio.sleep(PACE_S)

    return StreamingResponse(stream(), media_type="text/event-stream")


agent = Starlette(routes=[Route("/agent", run, methods=["POST"])])
url = environ.get("AGENT_URL", "http://127.0.0.1:8000/agent")

app = App("shop", adapters.ag_ui(url, name="Clerk"))  # turnlog
