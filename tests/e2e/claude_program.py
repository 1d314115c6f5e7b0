"""The real Claude Code program, offline: its path, its environment, and a scripted Messages API."""

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

from turnlog.ids import new_id

Block = dict[str, Any]
Choose = Callable[[Any], list[Block]]
MAX_HANG_S = 60.0  # of a completion that never ends; the test ends it


def find_program() -> str | None:
    """Return the path that TURNLOG_CLAUDE_CLI names, of the package's own program, or of one on PATH."""
    package = importlib.util.find_spec("claude_agent_sdk")
    folders = (package.submodule_search_locations or []) if package else []
    bundled = [Path(folder) / "_bundled" / "claude" for folder in folders]
    found = next((str(path) for path in bundled if path.is_file()), None)
    return os.environ.get("TURNLOG_CLAUDE_CLI") or found or shutil.which("claude")


def make_environment(folder: Path, port: int) -> dict[str, str]:
    """Return an environment in which the program knows a folder and the scripted API, and nothing else."""
    switches = (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_TELEMETRY",
        "DISABLE_AUTOUPDATER",
        "DISABLE_ERROR_REPORTING",
        "IS_SANDBOX",
    )
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        **dict.fromkeys(switches, "1"),
    }


def text(words: str, *, hangs: bool = False) -> Block:
    return {"type": "text", "text": words, "hangs": hangs}


def use(tool: str, args: dict[str, Any], call_id: str | None = None) -> Block:
    return {"type": "tool_use", "id": call_id or new_id("call_"), "name": tool, "input": args}


class ScriptedApi(BaseHTTPRequestHandler):
    """Streams the blocks that a function chooses for the body of a request."""

    protocol_version = "HTTP/1.1"
    choose: Choose
    over: Event

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        blocks = type(self).choose(body)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        message = {"id": new_id("blk_"), "type": "message", "role": "assistant", "model": "m", "content": []}
        usage = {"input_tokens": 5, "output_tokens": 1}
        unfinished = {"stop_reason": None, "stop_sequence": None, "usage": usage}
        self._event("message_start", message={**message, **unfinished})
        for index, block in enumerate(blocks):
            if not self._stream_block(index, block):
                return
        reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
        finished = {"stop_reason": reason, "stop_sequence": None}
        self._event("message_delta", delta=finished, usage={"output_tokens": 3})
        self._event("message_stop")

    def _stream_block(self, index: int, block: Block) -> bool:
        """Stream a block. Return False if the completion ends here."""
        if block["type"] == "tool_use":
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            start = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        self._event("content_block_start", index=index, content_block=start)
        self._event("content_block_delta", index=index, delta=delta)
        if block.get("hangs"):
            self.over.wait(MAX_HANG_S)
            return False
        self._event("content_block_stop", index=index)
        return True

    def _event(self, type: str, **fields: Any) -> None:
        self.wfile.write(f"event: {type}\ndata: {json.dumps({'type': type, **fields})}\n\n".encode())
        self.wfile.flush()


@contextmanager
def serve_messages(folder: Path, choose: Choose) -> Iterator[dict[str, str]]:
    """Serve a scripted Messages API. Yield the environment of a program that uses it."""
    over = Event()
    handler = type("Scripted", (ScriptedApi,), {"choose": staticmethod(choose), "over": over})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield make_environment(folder, server.server_port)
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
