"""Row 43: files of members: what is accepted, who reads them, how much of them there may be."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.security.apps import PNG, counter, plain
from tests.security.desk import MANY, Answer, Desk, desk, run
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import Attachments, attachments, image_headers
from turnlog.app.membership import Membership
from turnlog.log import Log
from turnlog.log.log import UPLOAD_MS
from turnlog.server.routes import blobs
from turnlog.state import blob_references
from turnlog.state.history import Message

HTML = b"<!doctype html><script>alert(1)</script>"


def describe(messages: list[Message]) -> Iterator[str]:
    """Say which parts the last message has."""
    yield " ".join(f"{part['type']}:{part.get('title', '')}" for part in messages[-1].content)


def make(**options: object) -> App:
    return App("desk", Agent("Clerk", "Look.", Scripted(describe)), **options)  # type: ignore[arg-type]


async def upload(
    at: Desk, who: str, session: str, data: bytes = PNG, media_type: str = "image/png"
) -> Answer:
    return await at.ask(who, "POST", f"/api/blobs?session={session}&media_type={media_type}", data)


async def attach(at: Desk, who: str, session: str, blob: str, message: str = "") -> Answer:
    files = [{"blob": blob, "name": "plan.png"}]
    return await at.post(who, "/api/send", {"session": session, "message": message, "attachments": files})


@asynccontextmanager
async def session_of(app: App, **options: object) -> AsyncIterator[tuple[Desk, str]]:
    async with desk(app, **options) as at:  # type: ignore[arg-type]
        yield at, await at.session("ada", app.name)


def test_a_file_reaches_the_event_the_model_and_the_other_member() -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            stored = (await upload(at, "ada", session)).value
            assert stored["size_bytes"] == len(PNG)
            sent = await attach(at, "ada", session, stored["blob"], "Look at this.")
            assert sent.status == 202, sent.body
            [message] = await at.told("ada", session, "ui.message")
            image = {"type": "image", "src": stored["url"], "media_type": "image/png"}
            image |= {"size_bytes": len(PNG), "title": "plan.png"}
            text = {"type": "text", "text": "Look at this."}
            assert message["payload"] == {"text": "Look at this.", "content": [text, image]}
            [reply] = await at.told("ada", session, "assistant.message")
            assert reply["payload"]["text"] == "text: image:plan.png"
            await at.enrol("ada", session, "bob", "guest")
            read = await at.get("bob", "/" + stored["url"])
            assert (read.status, read.body) == (200, PNG)

    run(scenario())


def test_a_file_without_words_and_a_posted_message() -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            blob = (await upload(at, "ada", session, b"a,b\n1,2\n", "text/csv")).value["blob"]
            assert (await attach(at, "ada", session, blob)).status == 202
            payload = {"text": "And again.", "attachments": [{"blob": blob, "name": "table.csv"}]}
            event = {"type": "ui.message", "payload": payload}
            posted = await at.post("ada", "/api/events", {"session": session, "events": [event]})
            assert posted.status == 202, posted.body
            messages = await at.told("ada", session, "ui.message", 2)
            assert [item["payload"]["text"] for item in messages] == ["[document: plan.png]", "And again."]
            assert messages[1]["payload"]["content"][1]["title"] == "table.csv"

    run(scenario())


@pytest.mark.parametrize(
    ("data", "media_type", "status"),
    [
        (PNG, "image/png", 201),
        (b"%PDF-1.7\n", "application/pdf", 201),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp", 201),
        ("grün".encode(), "text/plain", 201),
        (HTML, "text/html", 400),
        (HTML, "image/svg+xml", 400),
        (HTML, "application/javascript", 400),
        (HTML, "image/png", 400),
        (HTML, "application/pdf", 400),
        (b"RIFF\x24\0\0\0WAVEfmt ", "image/webp", 400),
        (b"\xff\xfe", "text/plain", 400),
        (b"a\0b", "text/plain", 400),
        (b"", "text/plain", 400),
        (b"x" * (256 * 1024 + 1), "text/plain", 413),
    ],
)
def test_only_files_of_known_types_that_are_what_they_say(data: bytes, media_type: str, status: int) -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            assert (await upload(at, "ada", session, data, media_type)).status == status

    run(scenario())


def test_the_same_bytes_under_another_type_keep_the_first_type() -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            uploads = [await upload(at, "ada", session, b"[1]", kind) for kind in ("text/csv", "text/plain")]
            assert [answer.status for answer in uploads] == [201, 201]
            assert uploads[0].value == uploads[1].value
            assert uploads[1].value["media_type"] == "text/csv"
            assert (await attach(at, "ada", session, uploads[1].value["blob"], "Look.")).status == 202
            [message] = await at.told("ada", session, "ui.message")
            assert message["payload"]["content"][1]["media_type"] == "text/csv"

    run(scenario())


def test_control_without_the_check_a_page_is_stored_as_an_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(blobs, "check_file", lambda data, media_type: None)
        async with session_of(make()) as (at, session):
            assert (await upload(at, "ada", session, HTML, "image/png")).status == 201

    run(scenario())


HUGE_PNG = PNG[:8] + b"\0\0\0\x0dIHDR" + (60_000).to_bytes(4) * 2 + b"\x08\2\0\0\0"
HUGE_GIF = b"GIF89a" + b"\xff" * 4 + b"\0\0\0"


async def upload_huge_images() -> list[int]:
    async with session_of(make()) as (at, session):
        images = [(HUGE_PNG, "image/png"), (HUGE_GIF, "image/gif")]
        return [(await upload(at, "ada", session, data, kind)).status for data, kind in images]


def test_an_image_that_declares_too_many_pixels_is_refused() -> None:
    async def scenario() -> None:
        assert await upload_huge_images() == [400, 400]

    run(scenario())


def test_control_without_the_limit_of_pixels_the_image_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(image_headers, "MAX_IMAGE_PIXELS", 1 << 62)
        assert await upload_huge_images() == [201, 201]

    run(scenario())


def test_a_body_that_a_form_of_another_site_can_send_is_refused() -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            path = f"/api/blobs?session={session}&media_type=text/plain"
            for kind in ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded"):
                refused = await at.ask("ada", "POST", path, b"text", {"content-type": kind})
                assert refused.status == 415

    run(scenario())


def test_a_stored_file_never_runs_in_a_browser() -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            url = (await upload(at, "ada", session, HTML, "text/plain")).value["url"]
            read = await at.get("ada", "/" + url)
            assert read.header("content-type") == "application/octet-stream"
            assert read.header("content-disposition") == "attachment"
            assert "sandbox" in read.header("content-security-policy")
            assert read.header("x-content-type-options") == "nosniff"

    run(scenario())


async def send_file_named(at: Desk, session: str, name: str) -> str | None:
    """Send a file; return its name in the log."""
    blob = (await upload(at, "ada", session, b"echo", "text/plain")).value["blob"]
    body = {"session": session, "message": "See", "attachments": [{"blob": blob, "name": name}]}
    assert (await at.post("ada", "/api/send", body)).status == 202
    [message] = await at.told("ada", session, "ui.message")
    title: str | None = message["payload"]["content"][1].get("title")
    return title


def test_the_name_of_a_file_reads_in_its_order() -> None:
    async def scenario() -> None:
        right_to_left = "\u05d0\u200f.pdf"
        names = {"x\u202efdp.bat": "xfdp.bat", "\u2066\u2069": None, right_to_left: right_to_left}
        for name, stored in names.items():
            async with session_of(make()) as (at, session):
                assert await send_file_named(at, session, name) == stored

    run(scenario())


def test_the_name_of_a_posted_file_reads_in_its_order() -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            content = [{"type": "image", "src": "https://example.org/a", "title": "x\u202efdp.bat"}]
            event = {"type": "ui.message", "payload": {"text": "See", "content": content}}
            posted = await at.post("ada", "/api/events", {"session": session, "events": [event]})
            assert posted.status == 202
            [message] = await at.told("ada", session, "ui.message")
            assert message["payload"]["content"][0]["title"] == "xfdp.bat"

    run(scenario())


def test_control_without_the_check_a_name_hides_what_it_ends_with(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(attachments, "clean_file_name", lambda name: name)
        async with session_of(make()) as (at, session):
            assert await send_file_named(at, session, "x\u202efdp.bat") == "x\u202efdp.bat"

    run(scenario())


def test_a_file_of_another_session_or_of_nobody_cannot_be_attached() -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            other = await at.session("ada", "desk")
            foreign = (await upload(at, "ada", other)).value["blob"]
            own_name = f"{session}/{foreign.rpartition('/')[2]}"
            for blob in (foreign, own_name, "../secret", ""):
                assert (await attach(at, "ada", session, blob, "Look.")).status == 400
            content = [{"type": "image", "src": f"api/blobs/{foreign}"}]
            event = {"type": "ui.message", "payload": {"text": "Look.", "content": content}}
            posted = await at.post("ada", "/api/events", {"session": session, "events": [event]})
            assert posted.status == 400

    run(scenario())


def test_control_in_its_own_session_the_file_can_be_attached() -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            blob = (await upload(at, "ada", session)).value["blob"]
            content = [{"type": "image", "src": f"api/blobs/{blob}", "media_type": "text/html"}]
            event = {"type": "ui.message", "payload": {"text": "Look.", "content": content}}
            posted = await at.post("ada", "/api/events", {"session": session, "events": [event]})
            assert posted.status == 202
            [message] = await at.told("ada", session, "ui.message")
            assert message["payload"]["content"][0]["media_type"] == "image/png"

    run(scenario())


async def read_across_channels() -> list[int]:
    """Return what a buyer, a seller and a stranger get for a file of the seller's."""
    async with desk(counter) as at:
        session = await at.session("ada", "counter")
        await at.enrol("ada", session, "bob", "buyer")
        await at.enrol("ada", session, "cyd", "seller")
        stored = (await upload(at, "cyd", session)).value
        assert (await at.get("bob", "/" + stored["url"])).status in (200, 404)
        assert (await attach(at, "cyd", session, stored["blob"], "Look.")).status == 202
        return [(await at.get(who, "/" + stored["url"])).status for who in ("bob", "cyd", "ada", "a")]


def test_a_file_of_another_channel_is_404() -> None:
    async def scenario() -> None:
        assert await read_across_channels() == [404, 200, 200, 404]

    run(scenario())


def test_control_a_member_of_every_channel_reads_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(Membership, "visible_channels", None)
        assert await read_across_channels() == [200, 200, 200, 404]

    run(scenario())


async def read_picture_of_a_text(reader: str, writer: str) -> list[int]:
    """Return what a reader gets for a picture before, and after the text of an agent to the writer names it.

    No other event names the picture.
    """
    src: list[str] = []

    def show(messages: list[Message]) -> Iterator[str]:
        yield f"Here it is: ![the plan]({src[0]})"

    agent = Agent("Clerk", "Show.", Scripted(show))
    async with desk(App("desk", {"buyer": agent, "seller": agent}), limits=MANY) as at:
        session = await at.session("ada", "desk")
        await at.enrol("ada", session, "bob", "buyer", "guest")
        await at.enrol("ada", session, "cyd", "seller")
        src.append((await upload(at, "ada", session)).value["url"])
        statuses = [(await at.get(reader, "/" + src[0])).status]
        await at.send(writer, session, "Show me the plan.")
        await at.told("ada", session, "assistant.message")
        return [*statuses, (await at.get(reader, "/" + src[0])).status]


def test_a_guest_loads_the_picture_of_a_text_that_it_reads() -> None:
    async def scenario() -> None:
        assert await read_picture_of_a_text("bob", "bob") == [404, 200]

    run(scenario())


def test_control_without_the_addresses_in_texts_the_picture_is_404(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(blob_references, "find_text_blob_names", lambda text: set())
        assert await read_picture_of_a_text("bob", "bob") == [404, 404]

    run(scenario())


def test_the_picture_of_a_text_that_a_guest_does_not_read_is_404() -> None:
    async def scenario() -> None:
        assert await read_picture_of_a_text("bob", "cyd") == [404, 404]

    run(scenario())


def test_control_a_guest_who_sees_every_channel_loads_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(Membership, "may_see", lambda self, channel: True)
        assert await read_picture_of_a_text("bob", "cyd") == [404, 200]

    run(scenario())


def test_a_text_that_names_a_private_blob_shows_it_to_no_member(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada", "plain")
            await at.enrol("ada", session, "bob", "guest")
            private = await kept[-1].put_blob(session, PNG, "image/png", private=True)
            public = await kept[-1].put_blob(session, PNG, "image/png")
            await at.send("ada", session, f"say ![](api/blobs/{private}) ![](api/blobs/{public})")
            await at.told("bob", session, "assistant.message")
            for who in ("ada", "bob"):
                statuses = [(await at.get(who, f"/api/blobs/{name}")).status for name in (private, public)]
                assert statuses == [404, 200]

    run(scenario())


def test_uploads_are_counted_in_bytes() -> None:
    async def scenario() -> None:
        limits = MANY._replace(upload_bytes_per_hour=2 * len(PNG))
        async with session_of(make(), limits=limits) as (at, session):
            answers = [await upload(at, "ada", session, PNG) for _ in range(3)]
            assert [answer.status for answer in answers] == [201, 201, 429]
            assert answers[-1].header("retry-after")

    run(scenario())


def test_control_without_the_limit_the_third_upload_is_stored() -> None:
    async def scenario() -> None:
        async with session_of(make(), limits=MANY) as (at, session):
            assert [(await upload(at, "ada", session)).status for _ in range(3)] == [201, 201, 201]

    run(scenario())


def test_an_application_chooses_what_members_attach() -> None:
    async def scenario() -> None:
        policy = Attachments(media_types=["text/plain"], max_count=1, max_bytes=8)
        async with session_of(make(attachments=policy)) as (at, session):
            assert (await upload(at, "ada", session)).status == 400
            assert (await upload(at, "ada", session, b"123456789", "text/plain")).status == 413
            blob = (await upload(at, "ada", session, b"12345678", "text/plain")).value["blob"]
            files = [{"blob": blob, "name": "a"}, {"blob": blob, "name": "b"}]
            sent = {"session": session, "message": "Look.", "attachments": files}
            assert (await at.post("ada", "/api/send", sent)).status == 400
        async with session_of(make(attachments=Attachments(max_count=0))) as (at, session):
            assert (await upload(at, "ada", session)).status == 400

    run(scenario())


def test_an_upload_that_no_message_names_is_dropped(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            forgotten = (await upload(at, "ada", session, b"forgotten", "text/plain")).value
            named = (await upload(at, "ada", session)).value
            await attach(at, "ada", session, named["blob"], "Look.")
            log = kept[-1]
            assert await log.drop_uploads(log.now_ms() + UPLOAD_MS) == 1
            statuses = [(await at.get("ada", "/" + item["url"])).status for item in (forgotten, named)]
            assert statuses == [404, 200]

    run(scenario())


def test_a_closed_session_takes_no_files() -> None:
    async def scenario() -> None:
        async with session_of(make()) as (at, session):
            await at.post("ada", "/api/sessions/close", {"session": session})
            assert (await upload(at, "ada", session)).status == 409
            assert json.loads((await upload(at, "ada", session)).body)["error"]

    run(scenario())
