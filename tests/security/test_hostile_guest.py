"""Row 31: a guest that does its worst keeps no other member from working. The full form is in tests/soak."""

import asyncio
import http.client
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.harness import Server, running
from tests.e2e.streams import open_files, resident_bytes
from tests.security.desk import token
from tests.support import hostile_guest
from tests.support.hostile_guest import BATCH, Counts, Guest
from tests.support.invitations import FORM, redemption
from tests.support.limits import HANG_S
from turnlog.server.auth.credentials import hash_token
from turnlog.server.limits import Limits

APP = "tests.security.apps:plain"
GROWTH_BYTES = 64 << 20
REQUESTS = 10
REFUSED = {
    "endless_fields": {"431"},
    "endless_field": {"431"},
    "endless_url": {"414", "431"},
    "bad_bodies": {"400", "413", "429"},
    "endless_body": {"413", "429"},
}
# Allowances of guests do not fill again: how much they get does not depend on how fast the machine is.
NOT_REFILLED = """
from unittest.mock import patch
from turnlog.server.limits.policy import Limits, Rate
shipped = Limits.allowance_of
def allow_once(limits, principal):
    allowance = shipped(limits, principal)
    if allowance.requests.burst != limits.guest_burst:
        return allowance
    return allowance._replace(requests=Rate(1e-6, limits.guest_burst))
patch.object(Limits, "allowance_of", allow_once).start()
from turnlog.cli import main
main()
"""
UNLIMITED = """
from unittest.mock import patch
from turnlog.server.limits.policy import Allowance, Limits, Rate
many = Rate(1e9, 1e9)
allowance = Allowance(many, many, many, 10_000, 10_000)
patch.object(Limits, "allowance_of", lambda *_: allowance).start()
from turnlog.cli import main
main()
"""


@contextmanager
def served(folder: Path, *program: str) -> Iterator[Server]:
    """A server that knows ada and bob by their tokens."""
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps({name: {"sha256": hash_token(token(name))} for name in ("ada", "bob")}))
    with running(APP, folder, program=program, options=["--tokens", str(tokens)]) as server:
        yield server


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token(name)}"}


def session_of(server: Server, name: str) -> str:
    status, answer = server.post("/api/sessions", {}, bearer(name))
    assert status == 201, answer
    return str(answer["session_id"])


def invited(server: Server, session: str) -> Guest:
    """A guest of a session of ada's."""
    link = server.post("/api/links", {"session": session, "roles": ["guest"]}, bearer("ada"))[1]["path"]
    address, form = redemption(link)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    connection.request("POST", address, form, {"content-type": FORM})
    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.status == 303
    return Guest(server.port, response.headers["set-cookie"].partition(";")[0], session)


def work(server: Server, sessions: dict[str, str]) -> set[int]:
    """Have the members send and read; the statuses of their answers."""
    found = set()
    for _ in range(REQUESTS):
        found.add(server.get("/healthz", {"authorization": ""})[0])
        for name, session in sessions.items():
            events = [{"type": "case.note", "payload": {"text": "at work"}}]
            found.add(server.post("/api/events", {"session": session, "events": events}, bearer(name))[0])
            found.add(server.get(f"/api/state?session={session}", bearer(name))[0])
    return found


async def attacked(server: Server, sessions: dict[str, str]) -> tuple[Counts, set[int]]:
    """One round of every attack of a guest of ada's, and what the members were answered meanwhile."""
    guest = await asyncio.to_thread(invited, server, sessions["ada"])
    counts, statuses = await asyncio.gather(
        hostile_guest.attack(guest, hold_s=0), asyncio.to_thread(work, server, sessions)
    )
    return counts, statuses


def test_guest_that_does_its_worst_is_refused_and_members_are_served(tmp_path: Path) -> None:
    with served(tmp_path, sys.executable, "-c", NOT_REFILLED) as server:
        sessions = {name: session_of(server, name) for name in ("ada", "bob")}
        before, files = resident_bytes(server), open_files(server)["socket"]

        counts, statuses = asyncio.run(attacked(server, sessions))

        assert statuses == {200, 202}
        for name, refused in REFUSED.items():
            assert set(counts[name]) <= refused | {"none"}, name  # or no answer at all
        assert counts["streams"]["200"] <= Limits().guest_streams
        assert counts["streams"]["429"] > 0  # some get no answer: the server closes silent connections
        assert sum(counts["streams"].values()) == BATCH
        assert sum(found["429"] for found in counts.values()) > BATCH
        assert not [status for found in counts.values() for status in found if status.startswith("5")]
        assert resident_bytes(server) - before < GROWTH_BYTES
        while open_files(server)["socket"] > files:  # what it held is given back
            pass


def test_control_without_allowances_a_guest_gets_all_that_it_asks_for(tmp_path: Path) -> None:
    with served(tmp_path, sys.executable, "-c", UNLIMITED) as server:
        guest = invited(server, session_of(server, "ada"))
        counts = asyncio.run(hostile_guest.streams(guest, 0))
        assert counts == {"200": BATCH}
        assert "429" not in asyncio.run(hostile_guest.bad_bodies(guest, 0))
