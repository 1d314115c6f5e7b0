"""Row 10: the server fetches nothing that an event names. It opens no connection and no file for it."""

import asyncio
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.security.apps import TOOLS, VOCABULARY, obey
from tests.security.desk import Desk, desk, run
from tests.security.watch import watched
from tests.support.limits import HANG_S
from turnlog import Agent, App, tool
from turnlog.agents import Scripted

HOSTS = (
    "127.0.0.1",
    "localhost",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0.0.0.0",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "user:pass@127.0.0.1",
    "127.0.0.1.nip.io",
    "localhost.",
    "LOCALHOST",
    "evil.example@127.0.0.1",
)
OTHERS = (
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/",
    "http://metadata.google.internal/",
    "https://evil.example/x.png",
    "//evil.example/x.png",
    "ftp://127.0.0.1/x",
    "gopher://127.0.0.1:11211/_stats",
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "dict://127.0.0.1:6379/info",
    "data:text/html,<script>1</script>",
    "jar:http://127.0.0.1!/",
    "ldap://127.0.0.1/x",
    "/etc/passwd",
    "../../../../etc/passwd",
)


@contextmanager
def listening() -> Iterator[tuple[int, socket.socket]]:
    """Somebody who waits to be called."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener.getsockname()[1], listener


def called(listener: socket.socket) -> int:
    """How many have called."""
    count = 0
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return count
        connection.close()
        count += 1


def urls(port: int) -> list[str]:
    return [f"http://{host}:{port}/x.png" for host in HOSTS] + list(OTHERS)


async def name_everywhere(at: Desk, session: str, url: str) -> None:
    """Put an address wherever an event can hold one."""
    picture = {"type": "image", "source": {"type": "url", "url": url}}
    await at.send("ada", session, f"say ![x]({url}) <img src='{url}'> {url}")
    await at.post("ada", "/api/events", {"session": session, "events": [noted(url)]})
    await at.send("ada", session, f"confirm {url}")
    [*_, waiting] = await at.told("ada", session, "tool.await", 1)
    call = waiting["payload"]["calls"][0]["call_id"]
    results = [{"tool_use_id": call, "content": [picture, url]}]
    body = {"agent_uuid": session, "tool_results": results}
    assert (await at.post("ada", "/agent/tool_results", body)).status == 200
    image = {"src": url, "media_type": "image/png"}
    result = {"call_id": call, "tool": "confirm", "ok": True, "result": url, "images": [image]}
    event = {"type": "tool.result", "payload": result}
    await at.post("ada", "/api/events", {"session": session, "events": [event]})
    prompt = {"agent_uuid": session, "user_prompt": [{"type": "text", "text": "hear"}, picture]}
    is_web_address = url.startswith(("http://", "https://"))
    assert (await at.post("ada", "/agent/run", prompt)).status == (200 if is_web_address else 400)
    for path in (f"/api/log?session={session}", f"/api/state?session={session}"):
        assert (await at.get("ada", path)).status == 200


def noted(url: str) -> dict[str, Any]:
    return {"type": "case.note", "payload": {"text": url}}


def test_no_address_in_an_event_is_ever_fetched() -> None:
    app = App("plain", Agent("Clerk", "Obey.", Scripted(obey), tools=TOOLS), vocabulary=VOCABULARY)

    async def scenario() -> None:
        with listening() as (port, listener):
            async with desk(app) as at:
                table = urls(port)
                assert len(table) == 30
                with watched() as seen:
                    for url in table:
                        await name_everywhere(at, await at.session("ada"), url)
                assert called(listener) == 0
                assert seen == []

    run(scenario())


@tool
def confirm(question: str) -> str:
    """A tool that looks at what it was told."""
    with urllib.request.urlopen(question, timeout=HANG_S) as response:
        return str(response.status)


def test_control_a_tool_that_fetches_is_noticed() -> None:
    app = App("plain", Agent("Clerk", "Obey.", Scripted(obey), tools=(confirm,)))

    async def scenario() -> None:
        with listening() as (port, listener):
            async with desk(app) as at:
                session = await at.session("ada")
                with watched() as seen:
                    await at.send("ada", session, f"confirm http://127.0.0.1:{port}/x.png")
                    count = 0
                    while not count:  # it answers nothing: who calls hangs up when the connection is closed
                        count = called(listener)
                        await asyncio.sleep(0)
                    await at.told("ada", session, "agent.end")
                assert count == 1
                assert "socket.connect" in {kind for kind, _ in seen}

    run(scenario())
