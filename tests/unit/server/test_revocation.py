"""Cookies that were signed out: how they are recorded, read again and let go of."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.support.coverage_pause import without_coverage
from turnlog.errors import CallerError, StoreError
from turnlog.server.auth.revocation import MAX_IDS_PER_PRINCIPAL, MAX_STALE_LINES, RevokedCookies

NOW_S = 1_000_000.0
UNTIL = 1_000_100


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log.db.revoked"


def revoke(cookies: RevokedCookies, *ids: str, name: str = "ada", now_s: float = NOW_S) -> None:
    async def add() -> None:
        for one in ids:
            await cookies.revoke(name, one, UNTIL, now_s)

    asyncio.run(add())


def test_revoked_cookie_is_known_to_the_next_process_for_its_principal_alone(file: Path) -> None:
    revoke(RevokedCookies(file), "one", "two")
    again = RevokedCookies(file, NOW_S)
    assert again.is_revoked("ada", "one", 1)
    assert again.is_revoked("ada", "two", 1)
    assert not again.is_revoked("ada", "three", 1)
    assert not again.is_revoked("bob", "one", 1)


def test_file_of_revoked_cookies_is_for_its_owner_alone(file: Path) -> None:
    revoke(RevokedCookies(file), "one")
    modes = {file.stat().st_mode & 0o777}
    RevokedCookies(file, NOW_S)
    assert modes | {file.stat().st_mode & 0o777} == {0o600}


def test_revoked_cookie_that_has_expired_is_let_go_of_at_the_next_start(file: Path) -> None:
    revoke(RevokedCookies(file), "one")
    assert not RevokedCookies(file, UNTIL + 1).is_revoked("ada", "one", 1)
    assert file.read_bytes() == b""


def test_line_that_a_crash_cut_off_is_dropped_and_swallows_no_other(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    revoke(RevokedCookies(file), "one")
    with file.open("ab") as opened:
        opened.write(b'{"name":"ada","unt')
    with caplog.at_level(logging.ERROR):
        again = RevokedCookies(file, NOW_S)
    revoke(again, "two")
    third = RevokedCookies(file, NOW_S)
    assert [third.is_revoked("ada", one, 1) for one in ("one", "two")] == [True, True]
    assert "a line of log.db.revoked is not a sign-out and is dropped" in caplog.text


def test_principal_with_too_many_records_has_all_cookies_up_to_now_revoked(file: Path) -> None:
    cookies = RevokedCookies(file)
    revoke(cookies, *[str(number) for number in range(MAX_IDS_PER_PRINCIPAL)])
    made_ms = int(NOW_S * 1000)
    assert not cookies.is_revoked("ada", "other", made_ms)
    revoke(cookies, "one more")
    for known in (cookies, RevokedCookies(file, NOW_S)):
        assert known.is_revoked("ada", "one more", made_ms)
        assert known.is_revoked("ada", "other", made_ms)
        assert not known.is_revoked("ada", "new", made_ms + 1)
        assert not known.is_revoked("bob", "other", made_ms)


@without_coverage()
def test_file_is_written_anew_when_most_of_its_lines_say_nothing_any_more(file: Path) -> None:
    cookies = RevokedCookies(file)
    revoke(cookies, "bobs", name="bob")
    for number in range(15):
        revoke(cookies, *[f"{number}-{one}" for one in range(MAX_IDS_PER_PRINCIPAL)])
    assert len(file.read_bytes().splitlines()) <= MAX_STALE_LINES + 2 * MAX_IDS_PER_PRINCIPAL
    assert RevokedCookies(file, NOW_S).is_revoked("bob", "bobs", 1)


def test_sign_out_that_cannot_be_stored_is_an_error_and_holds_meanwhile(tmp_path: Path) -> None:
    cookies = RevokedCookies(tmp_path / "no" / "log.db.revoked")
    with pytest.raises(StoreError, match="the sign-out cannot be stored: No such file or directory"):
        revoke(cookies, "one")
    assert cookies.is_revoked("ada", "one", 1)


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="cannot read the signed-out cookies"):
        RevokedCookies(tmp_path)
