"""A program for document 001: send a message, and observe every agent that works on it.

    python -m tests.e2e.observe_agents URL SESSION MESSAGE

Input: the stream of a session in the dialect `agentic`, and the token in TURNLOG_TOKEN. Output: one JSON
object with the events. It follows the document: "record the receipt of events from each distinct agent, and
then make sure to wait for the TurnEnd message from each one". A hand-off announces one agent more.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import httpx2


def observe(client: httpx2.Client, session: str, message: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a turn until every agent in it has sent its TurnEnd."""
    seen: set[str] = set()
    ended: set[str] = set()
    query = {"session": session, "dialect": "agentic"}
    with client.stream("GET", "/api/events", params=query) as stream:
        client.post("/api/send", json={"session": session, "message": message}).raise_for_status()
        for line in stream.iter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            if not event.get("agent_id"):
                continue  # a heartbeat, or an event of no agent

            yield event
            seen.add(event["agent_id"])
            if event["type"] == "add_child" and event["handoff"]:
                seen.add(event["child_id"])
            if event["type"] == "turn_end":
                ended.add(event["agent_id"])
            if seen == ended:
                return


def show_simplest_ui(events: list[dict[str, Any]]) -> str:
    """Return what the simplest UI shows: ChatOutput events with depth=0."""
    outputs = [event for event in events if event["type"] == "chat_output" and event["depth"] == 0]
    return "".join(event["payload"]["content"] for event in outputs)


def sum_usage(events: list[dict[str, Any]]) -> dict[str, int]:
    """Return the tokens of a turn, from FinishCompletion events alone."""
    usages = [event["payload"]["usage"] for event in events if event["type"] == "completion_end"]
    return {name: sum(usage[name] for usage in usages) for name in ("input_tokens", "output_tokens")}


def main(url: str, session: str, message: str) -> None:
    headers = {"authorization": f"Bearer {os.environ['TURNLOG_TOKEN']}"}
    with httpx2.Client(base_url=url, headers=headers, timeout=None) as client:
        events = list(observe(client, session, message))
    json.dump({"events": events, "ui": show_simplest_ui(events), "usage": sum_usage(events)}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
