"""The clients of the Durable Streams project (npm, PyPI) against `turnlog serve`."""

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from durable_streams import DurableStream, stream

from tests.e2e.harness import Server, running
from tests.e2e.test_durable_streams import following
from tests.foreign_clients.node import find_node
from tests.foreign_clients.packages import workspace
from tests.support.limits import HANG_S

FOLDER = Path(__file__).parent
NUMBERS = 200


class Script:
    """A running script of this folder, and the lines that it has written."""

    def __init__(self, place: Path, name: str, arguments: Sequence[str]) -> None:
        command = [*find_node().node, str(place / name), *arguments]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by `close`
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=place
        )
        self.lines: list[str] = []

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def read_lines(self, count: int) -> None:
        while len(self.lines) < count:
            line = self._output.readline()
            assert line, self.finish()
            self.lines.append(line)

    def finish(self) -> str:
        """Wait for its end. Return its exit code, if it failed, and what it complained of."""
        # `communicate` reads the pipe itself: it would miss the lines that `readline` has buffered.
        self.lines += self._output
        self._process.wait(timeout=HANG_S)
        self._errors.seek(0)
        errors = self._errors.read()
        return f"exit code {self._process.returncode} {errors}" if self._process.returncode else errors

    def close(self) -> None:
        """End it if it still runs."""
        self._process.kill()
        self._process.wait()
        self._output.close()
        self._errors.close()


def items(script: Script) -> list[Any]:
    return [json.loads(line)["item"] for line in script.lines]


def test_npm_readers_and_a_producer_get_over_a_killed_server(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = stack.enter_context(workspace(FOLDER, tmp_path))
        server = stack.enter_context(running("fast", tmp_path))
        url = f"{server.url}/v1/stream/numbers"
        assert server.ask("PUT", "/v1/stream/numbers", None, {"content-type": "application/json"})[0] == 201

        arguments = [url, server.token]
        readers = [
            Script(place, "read.mjs", [*arguments, live, str(NUMBERS)]) for live in ("sse", "long-poll")
        ]
        writer = Script(place, "write.mjs", [*arguments, str(NUMBERS)])
        for script in (*readers, writer):
            stack.callback(script.close)

        readers[0].read_lines(NUMBERS // 4)
        server.kill()
        server = stack.enter_context(running("fast", tmp_path, port=server.port))

        assert [script.finish() for script in (*readers, writer)] == ["", "", ""]
        for reader in readers:
            assert items(reader) == list(range(NUMBERS))
        status, stored = server.get("/v1/stream/numbers")
        assert (status, stored) == (200, list(range(NUMBERS)))


def test_the_npm_client_resumes_at_an_offset(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = stack.enter_context(workspace(FOLDER, tmp_path))
        server = stack.enter_context(running("fast", tmp_path))
        url = f"{server.url}/v1/stream/resumed"
        json_type = {"content-type": "application/json"}
        assert server.ask("PUT", "/v1/stream/resumed", b"[0,1]", json_type)[0] == 201

        first = Script(place, "read.mjs", [url, server.token, "long-poll", "2"])
        stack.callback(first.close)
        assert first.finish() == ""
        assert server.ask("POST", "/v1/stream/resumed", b"[2,3]", json_type)[0] == 204
        offset = json.loads(first.lines[-1])["offset"]
        second = Script(place, "read.mjs", [url, server.token, "sse", "2", offset])
        stack.callback(second.close)
        assert second.finish() == ""

        assert items(first) == [0, 1]
        assert items(second) == [2, 3]


def test_npm_readers_get_over_a_silence_with_heartbeats(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = stack.enter_context(workspace(FOLDER, tmp_path))
        server = stack.enter_context(running("fast", tmp_path, options=("--heartbeat", "0.1")))
        json_type = {"content-type": "application/json"}
        assert server.ask("PUT", "/v1/stream/silent", b"[0]", json_type)[0] == 201

        url = f"{server.url}/v1/stream/silent"
        readers = [Script(place, "read.mjs", [url, server.token, live, "2"]) for live in ("sse", "long-poll")]
        for reader in readers:
            stack.callback(reader.close)
            reader.read_lines(1)
        # Another connection counts what the silence of this stream sends.
        asyncio.run(wait_for_heartbeats(server, "silent?offset=now&live=sse", 5))
        assert server.ask("POST", "/v1/stream/silent", b"1", json_type)[0] == 204

        for reader in readers:
            assert reader.finish() == ""
            assert items(reader) == [0, 1]


async def wait_for_heartbeats(server: Server, path: str, count: int) -> None:
    async with following(server, path) as reader:
        await reader.wait_for_comments(count)


def test_the_python_client_gets_over_a_silence_and_a_killed_server(tmp_path: Path) -> None:
    json_type = {"content-type": "application/json"}
    with running("fast", tmp_path, options=("--heartbeat", "0.1")) as first:
        url = f"{first.url}/v1/stream/killed"
        headers: dict[str, str | Callable[[], str]] = {**first.headers}
        assert first.ask("PUT", "/v1/stream/killed", b"[0]", json_type)[0] == 201
        with stream(url, headers=headers, offset="-1", live="sse") as response:
            received = response.iter_json()
            assert next(received) == 0
            asyncio.run(wait_for_heartbeats(first, "killed?offset=now&live=sse", 3))
            assert first.ask("POST", "/v1/stream/killed", b"1", json_type)[0] == 204
            assert next(received) == 1
            offset = response.offset
        first.kill()
        with running("fast", tmp_path, port=first.port) as second:
            assert second.ask("POST", "/v1/stream/killed", b"2", json_type)[0] == 204
            with stream(url, headers=headers, offset=offset, live=False) as response:
                # The client's offset is that of the last batch whose end it has read: before the 1.
                assert response.read_json() == [1, 2]


def test_the_python_client_writes_and_reads(tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        url = f"{server.url}/v1/stream/from/python"
        headers: dict[str, str | Callable[[], str]] = {**server.headers}
        handle = DurableStream.create(url, content_type="application/json", headers=headers, ttl_seconds=3600)
        handle.append({"text": "Hello"})
        handle.append([1, 2])
        with stream(url, headers=headers, live=False) as response:
            assert response.read_json() == [{"text": "Hello"}, [1, 2]]

        handle.append({"text": "live"})
        received = []
        with stream(url, headers=headers, offset="-1", live="sse") as response:
            for item in response.iter_json():
                received.append(item)
                if item == {"text": "live"}:
                    break
        assert received == [{"text": "Hello"}, [1, 2], {"text": "live"}]
        handle.delete()
        handle.close()
        assert server.get("/v1/stream/from/python")[0] == 404
