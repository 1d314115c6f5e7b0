"""Row 6: a cookie that was signed out, and a token that was taken away, are good for nothing any more."""

import time
from pathlib import Path

import pytest

from tests.security.apps import plain
from tests.security.desk import KEY, Call, Desk, desk, run, token, tokens
from turnlog.app import LOCAL
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, Identity, hash_token
from turnlog.server.auth.revocation import RevokedCookies
from turnlog.server.streaming.streams import StreamRegistry

WORD = "after the end"


async def sign_in(at: Desk, who: str) -> dict[str, str]:
    """The header with a new cookie of a principal."""
    answer = await at.post(who, "/api/sign-in", None)
    return {"cookie": answer.header("set-cookie").partition(";")[0]}


async def status(at: Desk, cookie: dict[str, str]) -> int:
    return (await at.ask(None, "GET", "/api/me", None, cookie)).status


async def sign_out(at: Desk, cookie: dict[str, str]) -> None:
    assert (await at.ask(None, "POST", "/api/sign-out", None, cookie)).status == 204


async def follow(at: Desk, session: str, headers: dict[str, str]) -> Call:
    call = at.call(None, "GET", f"/api/events?session={session}", None, headers)
    await call.word("session.member")
    return call


def test_cookie_after_sign_out_is_refused_with_all_its_copies() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            cookie, other = await sign_in(at, "ada"), await sign_in(at, "ada")
            renewed = await at.ask(None, "POST", "/api/sign-in", None, cookie)
            copy = {"cookie": renewed.header("set-cookie").partition(";")[0]}
            await sign_out(at, cookie)
            assert [await status(at, one) for one in (cookie, copy, other)] == [401, 401, 200]

    run(scenario())


def test_cookie_beside_a_token_is_signed_out_too() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            cookie = await sign_in(at, "ada")
            assert (await at.ask("ada", "POST", "/api/sign-out", None, cookie)).status == 204
            assert await status(at, cookie) == 401

    run(scenario())


def test_stream_of_a_cookie_that_is_signed_out_ends_and_others_go_on() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada")
            cookie, other = await sign_in(at, "ada"), await sign_in(at, "ada")
            ended, open_one = await follow(at, session, cookie), await follow(at, session, other)
            await sign_out(at, cookie)
            await ended.end()
            await at.send("ada", session, WORD)
            await open_one.word(WORD)
            await open_one.leave()
            assert WORD.encode() not in ended.answer.body

    run(scenario())


def test_control_where_sign_out_is_not_recorded_cookie_and_stream_live_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(RevokedCookies, "is_revoked", lambda *_: False)
        async with desk(plain) as at:
            session, cookie = await at.session("ada"), await sign_in(at, "ada")
            call = await follow(at, session, cookie)
            await sign_out(at, cookie)
            assert await status(at, cookie) == 200
            await at.send("ada", session, WORD)
            await call.word(WORD)
            await call.leave()

    run(scenario())


def served(revoked: RevokedCookies) -> BuiltinAuth:
    return BuiltinAuth(KEY, tokens(), revoked_cookies=revoked)


async def signed_out_before_a_restart(first: RevokedCookies, second: RevokedCookies) -> int:
    """What a server answers to a cookie that was signed out at the server before it."""
    before = create_app(plain, "memory:", auth=served(first))
    async with before.router.lifespan_context(before):
        at = Desk(before)
        cookie = await sign_in(at, "ada")
        await sign_out(at, cookie)
    after = create_app(plain, "memory:", auth=served(second))
    async with after.router.lifespan_context(after):
        return await status(Desk(after), cookie)


def test_cookie_that_was_signed_out_is_refused_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "log.db.revoked"
        first = RevokedCookies(file)
        cookie, _ = served(first).make_cookie(Identity(tokens()[hash_token(token("ada"))]), time.time())
        await served(first).revoke_cookie(cookie, time.time())
        assert file.stat().st_mode & 0o777 == 0o600
        again = RevokedCookies(file, time.time())
        after = create_app(plain, "memory:", auth=served(again))
        async with after.router.lifespan_context(after):
            assert await status(Desk(after), {"cookie": f"{served(again).cookie_name}={cookie}"}) == 401

    run(scenario())


def test_control_a_server_that_keeps_sign_outs_in_memory_forgets_them() -> None:
    async def scenario() -> None:
        assert await signed_out_before_a_restart(RevokedCookies(), RevokedCookies()) == 200

    run(scenario())


async def status_of_local(before: BuiltinAuth, after: BuiltinAuth) -> int:
    """What a server answers to who came in by the link of the server before it."""
    cookie, _ = before.make_cookie(Identity(LOCAL), time.time())
    application = create_app(plain, "memory:", auth=after)
    async with application.router.lifespan_context(application):
        return await status(Desk(application), {"cookie": f"{after.cookie_name}={cookie}"})


def test_cookie_of_local_is_refused_by_a_server_that_knows_people_by_tokens() -> None:
    async def scenario() -> None:
        def verify(text: str, now_s: float) -> None:
            return None

        assert await status_of_local(BuiltinAuth(KEY), BuiltinAuth(KEY, tokens())) == 401
        assert await status_of_local(BuiltinAuth(KEY), BuiltinAuth(KEY, {})) == 401
        assert await status_of_local(BuiltinAuth(KEY), BuiltinAuth(KEY, verify=verify)) == 401

    run(scenario())


def test_control_cookie_of_local_is_good_where_the_same_links_are_given() -> None:
    async def scenario() -> None:
        assert await status_of_local(BuiltinAuth(KEY), BuiltinAuth(KEY)) == 200
        assert await status_of_local(BuiltinAuth(KEY, tokens()), BuiltinAuth(KEY, tokens())) == 200

    run(scenario())


async def tokens_without_bob(at: Desk) -> tuple[str, list[Call]]:
    """Take bob's token away while he reads, by the token and by a cookie that came from it."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", "guest")
    cookie = await sign_in(at, "bob")
    calls = [at.follow("bob", f"session={session}"), await follow(at, session, cookie)]
    await calls[0].word("session.member")
    left = {digest: known for digest, known in tokens().items() if known.name != "bob"}
    at.application.state.set_tokens(left)
    assert (await at.get("bob", "/api/me")).status == 401
    assert await status(at, cookie) == 401
    return session, calls


def test_streams_of_a_token_that_is_taken_away_end_and_others_go_on() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            mine = await at.session("ada")
            hers = at.follow("ada", f"session={mine}")
            await hers.word("session.member")
            _, calls = await tokens_without_bob(at)
            for call in calls:
                await call.end()
            await at.send("ada", mine, WORD)
            await hers.word(WORD)
            await hers.leave()

    run(scenario())


def test_control_where_streams_are_not_looked_at_they_outlive_the_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(StreamRegistry, "end_signed_out", lambda _: None)
        async with desk(plain) as at:
            session, calls = await tokens_without_bob(at)
            await at.send("ada", session, WORD)
            for call in calls:
                await call.word(WORD)
                await call.leave()

    run(scenario())
