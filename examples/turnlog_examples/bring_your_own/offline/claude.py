#!/usr/bin/env python3
"""A script in place of the Claude Code program, for `claude_sdk_agent.py`: it plays one conversation offline.

It reads and writes lines of stream-json, as the program does. The clerk asks a researcher, wants to refund an
order with a tool of the SDK's process, and says that all is handled. It needs nothing but Python.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any, NoReturn
from uuid import uuid4

Line = dict[str, Any]

REFUND = "mcp__shop__refund"  # the tool `refund` of the server `shop`
ORDER = {"order": "A-17"}
NUMBERS = itertools.count(1)


class Program:
    """The program: one turn after the other."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id

    def run(self) -> None:
        for line in read_lines():
            if line["type"] == "user":
                self._play_turn()
            elif line["type"] == "control_request":
                self._reply(line["request_id"])

    def _write(self, kind: str, **fields: Any) -> None:
        line = {"type": kind, "uuid": str(uuid4()), "session_id": self._session_id, **fields}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def _reply(self, request_id: str) -> None:
        body = {"subtype": "success", "request_id": request_id, "response": {}}
        self._write("control_response", response=body)

    def _request(self, **request: Any) -> Line:
        """Ask the SDK for something, and wait for the answer."""
        request_id = f"req_{next(NUMBERS)}"
        self._write("control_request", request_id=request_id, request=request)
        for line in read_lines():
            if line["type"] == "control_response" and line["response"]["request_id"] == request_id:
                response: Line = line["response"]["response"]
                return response
            if line["type"] == "control_request":
                self._reply(line["request_id"])
                if line["request"]["subtype"] == "interrupt":
                    self._write_result(is_error=True, terminal_reason="aborted_tools")
        leave()

    def _play_turn(self) -> None:
        facts = {"model": "offline", "tools": [REFUND], "claude_code_version": "2.1.0"}
        self._write("system", subtype="init", apiKeySource="none", **facts)
        task = {"subagent_type": "Researcher", "description": "Ask", "prompt": "Who ordered?"}
        calls = {"call_ask": ("Agent", task), "call_refund": (REFUND, ORDER)}
        self._say("Let me look. ", calls)

        self._write("system", subtype="task_started", task_id="task_1", tool_use_id="call_ask", **task)
        content = [{"type": "text", "text": "Ada ordered it."}]
        message = {"id": "msg_researcher", "model": "offline", "content": content}
        self._write("assistant", message=message, parent_tool_use_id="call_ask")
        self._give_result("call_ask", "Ada ordered it.")

        permission = self._request(
            subtype="can_use_tool", tool_name=REFUND, input=ORDER, tool_use_id="call_refund"
        )
        if permission["behavior"] == "allow":
            self._give_result("call_refund", self._run_refund(permission["updatedInput"]))
        else:
            self._give_result("call_refund", permission["message"], is_error=True)
        self._say("The order is handled.", {})
        self._write_result(result="The order is handled.")

    def _say(self, text: str, calls: dict[str, tuple[str, Line]]) -> None:
        message_id = f"msg_{uuid4()}"

        def event(kind: str, **fields: Any) -> None:
            self._write("stream_event", event={"type": kind, **fields}, parent_tool_use_id=None)

        blocks: list[tuple[Line, Line, Line]] = [
            ({"type": "text", "text": text}, {"text": ""}, {"type": "text_delta", "text": text})
        ]
        for call_id, (name, args) in calls.items():
            block = {"type": "tool_use", "id": call_id, "name": name, "input": args}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(args)}
            blocks.append((block, {"input": {}}, delta))

        event("message_start", message={"id": message_id, "model": "offline", "content": []})
        for index, (block, empty, delta) in enumerate(blocks):
            event("content_block_start", index=index, content_block=block | empty)
            event("content_block_delta", index=index, delta=delta)
            message = {"id": message_id, "model": "offline", "content": [block]}
            self._write("assistant", message=message, parent_tool_use_id=None)
            event("content_block_stop", index=index)
        event("message_delta", delta={"stop_reason": "tool_use" if calls else "end_turn"})
        event("message_stop")

    def _give_result(self, call_id: str, text: str, *, is_error: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": is_error}
        self._write("user", message={"role": "user", "content": [block]}, parent_tool_use_id=None)

    def _run_refund(self, args: Line) -> str:
        """Run the tool in the process of the SDK, by the Model Context Protocol."""
        client = {"name": "offline", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        self._call_server("initialize", params)
        answer = self._call_server("tools/call", {"name": "refund", "arguments": args})
        return str(answer["result"]["content"][0]["text"])

    def _call_server(self, method: str, params: Line) -> Line:
        message = {"jsonrpc": "2.0", "id": next(NUMBERS), "method": method, "params": params}
        answer: Line = self._request(subtype="mcp_message", server_name="shop", message=message)
        response: Line = answer["mcp_response"]
        return response

    def _write_result(self, *, is_error: bool = False, **fields: Any) -> None:
        numbers = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 2}
        subtype = "error_during_execution" if is_error else "success"
        self._write("result", subtype=subtype, is_error=is_error, **numbers, **fields)


def read_lines() -> Iterator[Line]:
    while text := sys.stdin.readline():
        yield json.loads(text)


def leave() -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--resume")
    options = parser.parse_known_args()[0]
    Program(options.resume or str(uuid4())).run()
