"""Row 37: what a runtime stored for itself reaches nobody, whatever they ask for and whoever they are."""

from base64 import b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.security.apps import plain
from tests.security.desk import Answer, Desk, desk, run
from tests.security.routes import Known, asks, own
from turnlog.agents.blob_urls import blob_url
from turnlog.agents.models.model import session_blob_reader
from turnlog.errors import NotFound
from turnlog.events import CATALOG, AgentCheckpoint, Scope
from turnlog.log import Blob, Log
from turnlog.log import log as log_module

# A picture, so that every way of sending pictures would take it.
SECRET = b"\x89PNG\r\n\x1a\n" + b"the state of a runtime " * 4
FORMS = (SECRET[8:], b64encode(SECRET)[16:-16], sha256(SECRET).hexdigest().encode())
EVERYBODY = ("ada", "bob", "cyd", "root", "worker", None)
DIALECTS = ("turnlog", "blocks", "blocks-xml", "blocks-raw", "agentic", "office")

Attack = Callable[[Desk, Log], Awaitable[list[Answer]]]


async def get_any_blob(log: Log, name: str) -> Blob:
    """`Log.get_blob` without its defence."""
    blob = await log._run_read(log._blobs.blob, name)
    if blob is None:
        raise NotFound("no blob")
    return blob


async def pause(log: Log, session: str) -> str:
    """Store the state of a runtime and the checkpoint that names it. Return its name."""
    name = await log.put_blob(session, SECRET, "image/png", private=True)
    payload = AgentCheckpoint(source="framework", version="1", blob=name, paused=True, size_bytes=len(SECRET))
    scope = Scope(trace_id="tr_x", agent_id="agt_x")
    event = CATALOG.build_event(payload, id="evt_checkpoint", origin="system", scope=scope)
    await log.append(session, [event])
    return name


def leaks(answers: list[Answer]) -> list[bytes]:
    return [answer.body for answer in answers if any(form in answer.body for form in FORMS)]


async def known_of(at: Desk, log: Log) -> tuple[Known, str]:
    """Ada's session, in which Bob is a guest and a runtime is paused; and the name of the private blob."""
    known = await own(at, "ada")
    await at.enrol("ada", known.session, "bob", "guest")
    name = await pause(log, known.session)
    return known._replace(blob=name.rpartition("/")[2]), name


async def ask_every_route(at: Desk, log: Log) -> list[Answer]:
    known, _ = await known_of(at, log)
    return [
        await at.ask(who, ask.method, ask.path, ask.body) for who in EVERYBODY for ask in asks(known).values()
    ]


async def read_every_dialect(at: Desk, log: Log) -> list[Answer]:
    """A page answers a call with a picture at the address of the private blob, and reads every dialect."""
    known, name = await known_of(at, log)
    picture = {"src": blob_url(name), "media_type": "image/png"}
    payload = {"call_id": known.call, "tool": "confirm", "ok": True, "result": True, "images": [picture]}
    body = {"session": known.session, "events": [{"type": "tool.result", "payload": payload}]}
    posted = await at.post("ada", "/api/events", body)
    assert posted.status == 202, posted.body
    await at.told("ada", known.session, "agent.end", 2)

    answers = []
    for who in ("ada", "bob", "root"):
        for dialect in DIALECTS:
            query = f"session={known.session}&dialect={dialect}&images=inline&turn={known.turn}"
            answers.append(await at.follow(who, query).end())
    return answers


ATTACKS: list[Attack] = [ask_every_route, read_every_dialect]


async def attack_server(attack: Attack, url: str, kept: list[Log]) -> list[Answer]:
    async with desk(plain, url) as at:
        return await attack(at, kept[-1])


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_answer_has_the_content_or_its_hash(
    attack: Attack, url: str, kept: list[Log], tmp_path: Path
) -> None:
    async def scenario() -> None:
        answers = await attack_server(attack, url.replace("sqlite", f"sqlite:///{tmp_path}/log.db"), kept)
        assert any(b"private-" in answer.body for answer in answers), "its name is no secret"
        assert leaks(answers) == []

    run(scenario())


@pytest.mark.parametrize("attack", ATTACKS)
def test_control_a_log_that_returns_any_blob_gives_it_away(
    attack: Attack, kept: list[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "get_blob", get_any_blob)

    async def scenario() -> None:
        assert leaks(await attack_server(attack, "memory:", kept))

    run(scenario())


def test_a_private_blob_is_answered_like_one_that_does_not_exist(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            known, name = await known_of(at, kept[-1])
            missing = f"{known.session}/private-{'0' * 32}"
            for who in EVERYBODY:
                answers = [await at.get(who, f"/api/blobs/{path}") for path in (name, missing)]
                assert answers[0].status in (401, 404)
                assert answers[0].status == answers[1].status
                assert answers[0].body.replace(name.encode(), b"") == answers[1].body.replace(
                    missing.encode(), b""
                )
            assert (await at.get("ada", f"/api/blobs/{name}")).status == 404

    run(scenario())


def test_no_model_gets_a_private_blob_as_a_picture(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            known, name = await known_of(at, kept[-1])
            read = session_blob_reader(known.session, kept[-1].get_blob)
            with pytest.raises(NotFound):
                await read(name)

    run(scenario())


# content that is known


def prompt() -> list[dict[str, Any]]:
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(SECRET).decode()}
    return [{"type": "image", "source": source}, {"type": "text", "text": "hi"}]


async def guess_content(at: Desk, log: Log) -> tuple[list[bytes], list[Any]]:
    """A member stores the same bytes, in a session with the private blob and in one without.

    Return what is public of the private one's event, and how both requests were answered.
    """
    answered = []
    checkpoints: list[bytes] = []
    for has_private in (True, False):
        session = await at.session("ada")
        if has_private:
            await pause(log, session)
            lines = (await at.get("ada", f"/api/log?session={session}")).body.split(b"\n")
            checkpoints = [line for line in lines if b"agent.checkpoint" in line]
        answer = await at.post("ada", "/agent/run", {"agent_uuid": session, "user_prompt": prompt()})
        digest = sha256(SECRET).hexdigest()
        public = await at.get("ada", f"/api/blobs/{session}/{digest}")
        answered.append((answer.status, public.status, public.headers, public.body))
        assert await log.private_blob_names(session) == [] or has_private
    return checkpoints, answered


def test_equal_public_content_reveals_nothing_about_a_private_blob(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            checkpoints, (with_private, without) = await guess_content(at, kept[-1])
            assert with_private == without
            assert with_private[:2] == (200, 200), "the member's own picture is public"
            assert [line for line in checkpoints if FORMS[2] in line] == []

    run(scenario())


def test_control_a_name_with_the_hash_would_confirm_a_guess(
    kept: list[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "new_private_blob_name", lambda: sha256(SECRET).hexdigest())

    async def scenario() -> None:
        async with desk(plain) as at:
            checkpoints, (with_private, without) = await guess_content(at, kept[-1])
            assert [line for line in checkpoints if FORMS[2] in line]
            assert with_private != without, "the member's own picture cannot be fetched"

    run(scenario())


# checkpoints that others make up


def test_nobody_can_post_a_checkpoint(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            known, name = await known_of(at, kept[-1])
            payload = {"source": "framework", "version": "1", "blob": name}
            body = {"session": known.session, "events": [{"type": "agent.checkpoint", "payload": payload}]}
            for who in EVERYBODY:
                assert (await at.post(who, "/api/events", body)).status in (400, 401, 403, 404)
            types = [event["type"] for event in await at.log("ada", known.session)]
            assert types.count("agent.checkpoint") == 1

    run(scenario())
