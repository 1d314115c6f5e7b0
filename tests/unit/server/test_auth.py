"""Who is asking: tokens, cookies and codes, each with every way in which it does not hold (protocol 8.1)."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from starlette.requests import HTTPConnection

from tests.support.tables import for_each_row
from turnlog.app import Principal
from turnlog.server.auth import credentials as module
from turnlog.server.auth.credentials import (
    COOKIE_LIFETIME_S,
    SIGN_IN_CODE_LIFETIME_S,
    BuiltinAuth,
    Cookie,
    Identity,
    JoinCode,
    SignInCode,
    b64url_decode,
    b64url_encode,
    hash_token,
)

NOW = 1_800_000_000.0
KEY = b"k" * 32
ADA = Principal("ada", frozenset({"operator", "source"}))
TOKEN = "a-token-that-nobody-guesses"


def make_auth(*tokens: str, key: bytes = KEY) -> BuiltinAuth:
    return BuiltinAuth(key, {hash_token(token): ADA for token in tokens})


def who(auth: BuiltinAuth, connection: HTTPConnection, now_s: float) -> Identity | None:
    return asyncio.run(auth.authenticate(connection, now_s))


def asking(**headers: str) -> HTTPConnection:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "headers": raw})


def with_cookie(auth: BuiltinAuth, value: str) -> HTTPConnection:
    return asking(cookie=f"other=1; {auth.cookie_name}={value}")


def changed(text: str) -> Iterator[str]:
    """A text with each of its characters changed, and with one left out, one more, two parts swapped."""
    for place, was in enumerate(text):
        yield text[:place] + ("A" if was != "A" else "B") + text[place + 1 :]
        yield text[:place] + text[place + 1 :]
        yield text[:place] + "!" + text[place:]
    first, _, second = text.partition(".")
    yield from (
        f"{second}.{first}",
        first,
        f"{first}.",
        f".{second}",
        text + "=",
        text + ".",
        text + "\n",
        "",
    )


class TestTokens:
    def test_a_token_is_known_by_its_hash(self) -> None:
        auth = make_auth(TOKEN)
        known = Identity(ADA, None, hash_token(TOKEN))
        for header in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN} "):
            assert who(auth, asking(authorization=header), NOW) == known

    @for_each_row(
        "header",
        [
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            "Bearer",
            "Bearer ",
            f"Basic {TOKEN}",
            TOKEN,
            f"Bearer {hash_token(TOKEN)}",
            "Bearer ü",
        ],
    )
    def test_another_one_is_nobody(self, header: str) -> None:
        assert who(make_auth(TOKEN), asking(authorization=header), NOW) is None

    def test_nobody_says_nothing(self) -> None:
        assert who(make_auth(TOKEN), asking(), NOW) is None

    def test_what_is_no_token_of_ours_is_shown_to_verify(self) -> None:
        shown = []

        def verify(token: str, now_s: float) -> Identity | None:
            shown.append((token, now_s))
            return Identity(Principal("bob"), NOW + 60) if token == "of-a-provider" else None

        auth = BuiltinAuth(KEY, {hash_token(TOKEN): ADA}, verify)
        assert who(auth, asking(authorization="Bearer of-a-provider"), NOW) == Identity(
            Principal("bob"), NOW + 60
        )
        assert who(auth, asking(authorization="Bearer forged"), NOW) is None
        assert who(auth, asking(authorization=f"Bearer {TOKEN}"), NOW) is not None
        assert shown == [("of-a-provider", NOW), ("forged", NOW)]

    def test_a_wrong_token_is_not_made_good_by_a_cookie(self) -> None:
        auth = make_auth(TOKEN)
        cookie, _ = auth.make_cookie(Identity(ADA), NOW)
        both = asking(authorization="Bearer wrong", cookie=f"{auth.cookie_name}={cookie}")
        assert who(auth, both, NOW) is None
        assert who(auth, with_cookie(auth, cookie), NOW) is not None


class TestCookies:
    def test_a_cookie_says_who_somebody_is_until_it_ends(self) -> None:
        auth = make_auth()
        value, age_s = auth.make_cookie(Identity(ADA), NOW)
        assert age_s == COOKIE_LIFETIME_S
        known = who(auth, with_cookie(auth, value), NOW + COOKIE_LIFETIME_S - 1)
        assert known
        assert (known.principal, known.expires_at_s) == (ADA, NOW + COOKIE_LIFETIME_S)
        assert who(auth, with_cookie(auth, value), NOW + COOKIE_LIFETIME_S) is None

    def test_it_holds_no_longer_than_what_it_came_from(self) -> None:
        auth = make_auth()
        value, age_s = auth.make_cookie(Identity(ADA, NOW + 60), NOW)
        assert age_s == 60
        assert who(auth, with_cookie(auth, value), NOW + 60) is None
        assert auth.make_cookie(Identity(ADA, NOW + 10 * COOKIE_LIFETIME_S), NOW)[1] == COOKIE_LIFETIME_S

    def test_a_cookie_for_a_cookie_holds_no_longer(self) -> None:
        auth = make_auth()
        first, _ = auth.make_cookie(Identity(ADA), NOW)
        known = who(auth, with_cookie(auth, first), NOW + 1000)
        assert known is not None
        assert auth.make_cookie(known, NOW + 1000)[1] == COOKIE_LIFETIME_S - 1000

    def test_the_same_key_knows_it_after_a_restart_and_another_does_not(self) -> None:
        value, _ = make_auth().make_cookie(Identity(ADA), NOW)
        again, other = make_auth(), make_auth(key=b"o" * 32)
        assert who(again, with_cookie(again, value), NOW) is not None
        assert who(other, with_cookie(other, value), NOW) is None
        assert again.cookie_name != other.cookie_name, "two servers on one host do not sign each other out"

    def test_a_token_that_is_removed_ends_its_cookie(self) -> None:
        before = make_auth(TOKEN)
        known = who(before, asking(authorization=f"Bearer {TOKEN}"), NOW)
        assert known is not None
        value, _ = before.make_cookie(known, NOW)
        assert who(before, with_cookie(before, value), NOW) is not None
        for after, holds in (
            (make_auth(TOKEN), True),
            (make_auth("another-token"), False),
            (make_auth(), False),
        ):
            assert (who(after, with_cookie(after, value), NOW) is not None) == holds

    def test_a_token_that_has_other_roles_now_gives_them_to_its_cookie(self) -> None:
        chief = Principal("ada", frozenset({"operator"}))
        before, after = BuiltinAuth(KEY, {hash_token(TOKEN): chief}), make_auth(TOKEN)
        value, _ = before.make_cookie(Identity(chief, token_hash=hash_token(TOKEN)), NOW)
        for auth, principal in ((before, chief), (after, ADA)):
            known = who(auth, with_cookie(auth, value), NOW)
            assert known is not None
            assert known.principal == principal

    def test_no_byte_of_it_can_be_changed(self) -> None:
        auth = make_auth()
        value, _ = auth.make_cookie(Identity(ADA), NOW)
        assert auth.verify_signed(value, NOW) is not None
        assert [bad for bad in changed(value) if auth.verify_signed(bad, NOW) is not None] == []

    def test_a_code_is_no_cookie_and_a_cookie_no_code(self) -> None:
        auth = make_auth()
        cookie, _ = auth.make_cookie(Identity(ADA), NOW)
        assert auth.redeem_code(cookie, NOW) is None
        for code in (auth.make_sign_in_code(NOW), auth.make_join_code("sess_1", "inv_1")):
            assert who(auth, with_cookie(auth, code), NOW) is None

    @for_each_row("data", [b"", b"{}", b"[1]", b'{"type":"cookie"}', b'{"type":"root","until":1}', b"\xff"])
    def test_what_is_signed_and_no_value_is_none(self, data: bytes) -> None:
        auth = make_auth()
        text = f"{b64url_encode(data)}.{b64url_encode(auth._compute_signature(data))}"
        assert auth.verify_signed(text, 0) is None

    @for_each_row("text", ["", ".", "a.b", "ü.ü", "a" * 10_000, "\x00.\x00", "e30.e30"])
    def test_what_is_not_signed_is_none(self, text: str) -> None:
        assert make_auth().verify_signed(text, 0) is None


class TestCodes:
    def test_whoever_started_the_server_comes_in_once(self) -> None:
        auth = make_auth()
        code = auth.make_sign_in_code(NOW)
        assert isinstance(auth.redeem_code(code, NOW), SignInCode)
        assert auth.redeem_code(code, NOW) is None
        assert auth.redeem_code(auth.make_sign_in_code(NOW), NOW) is not None, "another code is another one"

    def test_a_code_says_where_to_begin(self) -> None:
        auth = make_auth()
        given = [
            auth.redeem_code(code, NOW)
            for code in (auth.make_sign_in_code(NOW), auth.make_sign_in_code(NOW, "sess_1"))
        ]
        assert [code and code.session for code in given] == ["", "sess_1"]

    def test_a_code_ends_after_a_quarter_of_an_hour(self) -> None:
        auth = make_auth()
        code = auth.make_sign_in_code(NOW)
        assert auth.redeem_code(code, NOW + SIGN_IN_CODE_LIFETIME_S) is None
        assert auth.redeem_code(code, NOW + SIGN_IN_CODE_LIFETIME_S - 1) is not None, (
            "trying late does not use it"
        )

    def test_a_code_is_for_one_start_of_one_server(self) -> None:
        code = make_auth().make_sign_in_code(NOW)
        assert make_auth().redeem_code(code, NOW) is None
        assert make_auth(key=b"o" * 32).redeem_code(code, NOW) is None

    def test_no_byte_of_a_code_can_be_changed(self) -> None:
        auth = make_auth()
        for code in (auth.make_sign_in_code(NOW), auth.make_join_code("sess_1", "inv_1")):
            assert [bad for bad in changed(code) if auth.redeem_code(bad, NOW) is not None] == []
            assert auth.redeem_code(code, NOW) is not None

    def test_used_codes_are_forgotten_when_they_have_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_USED_CODES", 2)
        auth = make_auth()
        codes = [auth.make_sign_in_code(NOW) for _ in range(3)]
        assert [auth.redeem_code(code, NOW) is not None for code in codes] == [True, True, False]
        later = NOW + SIGN_IN_CODE_LIFETIME_S
        assert auth.redeem_code(auth.make_sign_in_code(later), later) is not None
        assert auth.redeem_code(codes[0], later) is None

    def test_a_code_to_join_names_session_and_invite_and_holds_over_a_restart(self) -> None:
        code = make_auth().make_join_code("sess_1", "inv_1")
        assert make_auth().redeem_code(code, NOW) == JoinCode("sess_1", "inv_1")
        assert make_auth(key=b"o" * 32).redeem_code(code, NOW) is None

    def test_invites_have_ids_of_their_own_but_for_those_under_one_key(self) -> None:
        ids = [
            make_auth().make_invite_id("sess_1", ["guest"], "ada", key) for key in (None, None, "k", "k", "l")
        ]
        assert len(set(ids)) == 4
        assert ids[2] == ids[3]

    def test_guests_do_not_use_up_what_is_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_USED_CODES", 1)
        auth = make_auth()
        for _ in range(3):
            assert auth.redeem_code(auth.make_join_code("sess_1", "inv_1"), NOW) is not None
        assert isinstance(auth.redeem_code(auth.make_sign_in_code(NOW), NOW), SignInCode)


def test_values_may_stand_in_urls_and_cookies() -> None:
    auth = make_auth()
    texts = [
        auth.make_sign_in_code(NOW),
        auth.make_join_code("sess_1", "inv_1"),
        auth.make_cookie(Identity(ADA), NOW)[0],
    ]
    for text in texts:
        assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


@for_each_row("data", [b"", b"a", b"ab", b"abc", bytes(range(256))])
def test_bytes_are_read_only_as_they_are_written(data: bytes) -> None:
    assert b64url_decode(b64url_encode(data)) == data
    for text in (
        b64url_encode(data) + "=",
        b64url_encode(data) + " ",
        b64url_encode(data) + "\n",
        "~" + b64url_encode(data),
    ):
        with pytest.raises(ValueError, match=r".*"):
            b64url_decode(text)


def test_unused_bits_are_not_there_to_be_changed() -> None:
    assert b64url_encode(b"a") == "YQ"
    with pytest.raises(ValueError, match="not canonical base64url"):
        b64url_decode("YR")


def test_the_three_kinds_of_values_are_told_apart() -> None:
    auth = make_auth()
    values: list[Cookie | SignInCode | JoinCode] = [
        Cookie(2, "ada", "id", 1),
        SignInCode(2, "start", "1"),
        JoinCode("sess_1", "inv_1"),
    ]
    assert [auth.verify_signed(auth.sign(value), 1) for value in values] == values
    assert len({msgspec.json.encode(value)[:16] for value in values}) == 3
