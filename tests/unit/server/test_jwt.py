"""JSON Web Tokens: what is accepted, and every attack that is not (RFC 8725), with keys made here."""

import base64
import hmac
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.support.tables import for_each_row
from turnlog.app import Principal
from turnlog.errors import CallerError
from turnlog.server.auth.credentials import Identity
from turnlog.server.auth.jwt import (
    KEY_TYPE_BY_ALGORITHM,
    MAX_CLOCK_SKEW_S,
    MAX_TOKEN_CHARS,
    JwtTokens,
    load_jwt_tokens,
)

NOW = 1_800_000_000.0
SECRET = b"0123456789abcdef0123456789abcdef-and-more-of-it-for-the-larger-hashes"
RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
EC = {
    name: ec.generate_private_key(curve)
    for name, curve in (("ES256", ec.SECP256R1()), ("ES384", ec.SECP384R1()))
}
ED = ed25519.Ed25519PrivateKey.generate()
CLAIMS = {"sub": "ada", "exp": NOW + 60, "aud": "turnlog", "iss": "https://id.example"}


def pem(private: Any) -> bytes:
    """The public key of a private one."""
    data: bytes = private.public_key().public_bytes(ser.Encoding.PEM, ser.PublicFormat.SubjectPublicKeyInfo)
    return data


def private_pem(private: Any) -> bytes:
    data: bytes = private.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption())
    return data


def accepting(key: bytes = b"", *algorithms: str, **more: Any) -> JwtTokens:
    return JwtTokens(key or pem(RSA), algorithms or ("RS256",), "turnlog", "https://id.example", **more)


def signed(claims: Any = None, key: Any = RSA, algorithm: str = "RS256", **headers: Any) -> str:
    return jwt.encode(CLAIMS if claims is None else claims, key, algorithm, headers or None)


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(header: Any, claims: Any = None, key: bytes | None = None) -> str:
    """A token as an attacker writes it, signed with HMAC or not at all."""
    text = f"{part(header)}.{part(claims or CLAIMS)}"
    return f"{text}.{part(hmac.digest(key, text.encode(), 'sha256')) if key is not None else ''}"


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in CLAIMS.items() if name not in names}


class TestAccepted:
    def test_a_token_says_who_somebody_is_and_until_when(self) -> None:
        token = signed({**CLAIMS, "roles": ["admins", "clerk"], "name": "Ada"})
        accept = accepting(roles={"admins": "operator"})
        assert accept(token, NOW) == Identity(Principal("jwt:ada", frozenset({"operator"})), NOW + 60)

    @for_each_row(
        ("key", "private", "algorithm"),
        [
            (SECRET, SECRET, "HS256"),
            (SECRET, SECRET, "HS512"),
            (pem(RSA), RSA, "RS384"),
            (pem(RSA), RSA, "PS256"),
            (pem(EC["ES256"]), EC["ES256"], "ES256"),
            (pem(EC["ES384"]), EC["ES384"], "ES384"),
            (pem(ED), ED, "EdDSA"),
        ],
    )
    def test_with_each_kind_of_key(self, key: bytes, private: Any, algorithm: str) -> None:
        token = signed(key=private, algorithm=algorithm)
        assert accepting(key, algorithm)(token, NOW) == Identity(Principal("jwt:ada"), NOW + 60)

    def test_several_algorithms_of_one_kind(self) -> None:
        verify = accepting(pem(RSA), "RS256", "PS256")
        assert verify(signed(), NOW)
        assert verify(signed(algorithm="PS256"), NOW)
        assert verify(signed(algorithm="RS512"), NOW) is None

    def test_one_audience_of_several(self) -> None:
        assert accepting()(signed({**CLAIMS, "aud": ["else", "turnlog"]}), NOW)

    def test_jwt_roles_in_the_named_claim_are_mapped_to_server_roles(self) -> None:
        token = signed({**CLAIMS, "groups": ["admins", "else"], "roles": ["workers"]})
        roles = {"admins": "operator", "workers": "executor"}
        known = accepting(roles_claim="groups", roles=roles)(token, NOW)
        assert known is not None
        assert known.principal.server_roles == {"operator"}

    @pytest.mark.parametrize("role", ["operator", "owner", "executor", "offline_access", "Admins", "admins "])
    def test_jwt_roles_that_are_not_in_the_map_are_ignored(self, role: str) -> None:
        known = accepting(roles={"admins": "operator"})(signed({**CLAIMS, "roles": [role]}), NOW)
        assert known is not None
        assert known.principal.server_roles == frozenset()

    def test_jwt_map_to_a_role_that_is_no_server_role_is_refused(self) -> None:
        with pytest.raises(CallerError, match="executor, operator or source, got 'owner'"):
            accepting(roles={"admins": "owner"})

    @pytest.mark.parametrize("name", ["", "Acme", "a:b", "local"])
    def test_jwt_provider_with_a_name_that_could_be_another_source_is_refused(self, name: str) -> None:
        with pytest.raises(CallerError, match="for the provider"):
            accepting(name=name)

    def test_jwt_principals_begin_with_the_name_of_their_provider(self) -> None:
        known = accepting(name="acme")(signed(), NOW)
        assert known is not None
        assert known.principal.name == "acme:ada"


class TestTimes:
    def test_it_ends_when_it_says(self) -> None:
        verify, token = accepting(), signed()
        assert verify(token, NOW + 59.9)
        assert verify(token, NOW + 60) is None
        assert verify(token, NOW + 1e9) is None

    @for_each_row("claim", ["nbf", "iat"])
    def test_it_does_not_begin_before_it_says(self, claim: str) -> None:
        token = signed({**CLAIMS, claim: NOW + 50})
        assert accepting()(token, NOW) is None
        assert accepting()(token, NOW + 50 - MAX_CLOCK_SKEW_S)

    @for_each_row("claim", ["exp", "nbf", "iat"])
    @for_each_row("value", ["soon", None, True, -1, 1e13, [1], {}, "1800000060", 10**400])
    def test_a_time_that_is_none_is_refused(self, claim: str, value: Any) -> None:
        token = f"{part({'alg': 'HS256'})}.{part({**CLAIMS, claim: value})}"
        token += "." + part(hmac.digest(SECRET, token.encode(), "sha256"))
        assert accepting(SECRET, "HS256")(token, NOW) is None

    @for_each_row("text", ["NaN", "Infinity", "-Infinity", "1e400"])
    def test_nor_is_one_that_never_ends_accepted(self, text: str) -> None:
        body = json.dumps(CLAIMS).replace(str(NOW + 60), text).encode()
        token = f"{part({'alg': 'HS256'})}.{part(body)}"
        token += "." + part(hmac.digest(SECRET, token.encode(), "sha256"))
        assert text.encode() in body
        assert accepting(SECRET, "HS256")(token, NOW) is None


class TestClaims:
    @for_each_row("claim", ["sub", "exp", "aud", "iss"])
    def test_each_of_them_is_needed(self, claim: str) -> None:
        assert accepting()(signed(without(claim)), NOW) is None

    @for_each_row(
        "claims",
        [
            {"aud": "else"},
            {"aud": []},
            {"aud": "turnlog2"},
            {"aud": ["turnlo"]},
            {"aud": 1},
            {"iss": "https://evil.example"},
            {"iss": "https://id.example/"},
            {"sub": ""},
            {"sub": "a\nb"},
            {"sub": "ü" * 65},
            {"sub": "x" * 129},
            {"roles": "owner"},
            {"roles": {"owner": True}},
            {"roles": [1]},
            {"roles": None},
        ],
    )
    def test_others_are_refused(self, claims: Any) -> None:
        assert accepting()(signed({**CLAIMS, **claims}), NOW) is None

    @for_each_row("name", ["local", "guest_0123456789abcdef", "guest_"])
    def test_jwt_sub_equal_to_a_name_of_another_source_is_another_principal(self, name: str) -> None:
        known = accepting()(signed({**CLAIMS, "sub": name}), NOW)
        assert known is not None
        assert known.principal.name == f"jwt:{name}"

    def test_jwt_sub_too_long_with_its_prefix_is_refused(self) -> None:
        assert accepting()(signed({**CLAIMS, "sub": "a" * 124}), NOW)
        assert accepting()(signed({**CLAIMS, "sub": "a" * 125}), NOW) is None


class TestAttacks:
    @for_each_row("name", ["none", "None", "NONE", "nOnE", "", None, 0])
    def test_an_unsigned_token_is_refused(self, name: Any) -> None:
        for token in (forged({"alg": name, "typ": "JWT"}), forged({"alg": name}, key=b"")):
            assert accepting()(token, NOW) is None
            assert accepting(SECRET, "HS256")(token, NOW) is None

    def test_a_public_key_is_no_secret(self) -> None:
        for key in (pem(RSA), pem(RSA).rstrip(), pem(RSA).replace(b"\n", b"\r\n")):
            assert accepting()(forged({"alg": "HS256"}, key=key), NOW) is None
        control = JwtTokens(SECRET, ["HS256"], "turnlog", "https://id.example")
        assert control(forged({"alg": "HS256"}, key=SECRET), NOW), "the forger knows how"

    def test_kinds_of_keys_are_not_mixed(self) -> None:
        for algorithms in (("RS256", "HS256"), ("HS256", "ES256"), ("RS256", "EdDSA"), ()):
            with pytest.raises(CallerError, match="the same kind of key"):
                accepting(pem(RSA), *algorithms) if algorithms else JwtTokens(pem(RSA), (), "a", "b")

    @for_each_row("algorithms", [["none"], ["RS256", "none"], ["HS1"], ["rs256"], "RS256"])
    def test_algorithms_are_of_a_list(self, algorithms: Any) -> None:
        with pytest.raises(CallerError, match="expected algorithms out of HS256, "):
            JwtTokens(pem(RSA), algorithms, "turnlog", "https://id.example")

    def test_another_key_of_the_same_kind_is_refused(self) -> None:
        assert accepting()(signed(key=OTHER_RSA), NOW) is None

    @for_each_row("header", ["jwk", "jku", "x5u", "x5c", "kid"])
    def test_a_key_that_the_token_brings_is_not_looked_at(self, header: str) -> None:
        jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(OTHER_RSA.public_key()))
        value = {
            "jwk": jwk,
            "jku": "http://127.0.0.1:1/",
            "x5u": "http://127.0.0.1:1/",
            "x5c": ["AA"],
            "kid": "../../x",
        }
        assert accepting()(signed(key=OTHER_RSA, **{header: value[header]}), NOW) is None
        assert accepting()(signed(**{header: value[header]}), NOW), "the header alone does no harm"

    def test_what_must_be_understood_and_is_not_is_refused(self) -> None:
        assert accepting()(signed(crit=["exp2"], exp2=1), NOW) is None

    def test_no_part_of_it_can_be_changed(self) -> None:
        verify, token = accepting(SECRET, "HS256"), signed(key=SECRET, algorithm="HS256")
        assert verify(token, NOW)
        head, body, _ = token.split(".")
        for place in range(len(head) + len(body) + 1):
            other = "A" if token[place] != "A" else "B"
            assert verify(token[:place] + other + token[place + 1 :], NOW) is None, place
        owner = part({**CLAIMS, "roles": ["owner"]})
        assert verify(token.replace(body, owner), NOW) is None

    @for_each_row(
        "token",
        [
            "",
            ".",
            "..",
            "...",
            "a.b.c",
            "e30.e30.",
            "ü.ü.ü",
            "e30.e30.e30",
            "\x00.\x00.\x00",
            "W10.W10.W10",
            " . . ",
        ],
    )
    def test_what_is_no_token_is_nobody(self, token: str) -> None:
        assert accepting()(token, NOW) is None

    def test_deep_and_long_tokens_cost_little(self) -> None:
        deep = part(b'{"alg":' + b"[" * 5000 + b"]" * 5000 + b"}")
        assert accepting()(f"{deep}.e30.e30", NOW) is None
        long = signed({**CLAIMS, "more": "x" * MAX_TOKEN_CHARS})
        assert accepting()(long, NOW) is None
        assert accepting()(signed({**CLAIMS, "more": "x" * 1000}), NOW)


class TestKeys:
    @for_each_row(
        ("key", "algorithm", "words"),
        [
            (b"", "RS256", "expected a public RSA key in PEM"),
            (b"secret", "RS256", "expected a public RSA key in PEM"),
            (private_pem(RSA), "RS256", "expected a public RSA key in PEM"),
            (pem(EC["ES256"]), "RS256", "expected a public RSA key, got another kind of key"),
            (pem(RSA), "ES256", "expected a public EC key, got another kind of key"),
            (pem(RSA), "EdDSA", "expected a public Ed25519 key, got another"),
            (pem(RSA), "HS256", "a secret of at least 32 bytes, not a key in PEM"),
            (b"x" * 31, "HS256", "a secret of at least 32 bytes"),
            (pem(rsa.generate_private_key(65537, 1024)), "RS256", "at least 2048 bits, got 1024"),
        ],
    )
    def test_a_key_that_does_not_fit_is_refused(self, key: bytes, algorithm: str, words: str) -> None:
        with pytest.raises(CallerError, match=words):
            JwtTokens(key, [algorithm], "turnlog", "https://id.example")

    @for_each_row(("audience", "issuer"), [("", "b"), ("a", ""), ("", "")])
    def test_audience_and_issuer_are_needed(self, audience: str, issuer: str) -> None:
        with pytest.raises(CallerError, match="an audience and an issuer"):
            JwtTokens(SECRET, ["HS256"], audience, issuer)

    def test_every_algorithm_that_may_be_named_is_one(self) -> None:
        assert set(KEY_TYPE_BY_ALGORITHM) <= set(jwt.algorithms.get_default_algorithms())
        assert "none" not in KEY_TYPE_BY_ALGORITHM


class TestFile:
    def write(self, folder: Path, text: str, name: str = "jwt.toml", key: bytes | None = None) -> Path:
        if key is not None:
            (folder / "key").write_bytes(key)
        (folder / name).write_text(text)
        return folder / name

    TOML = 'key_file = "key"\nalgorithms = ["HS256"]\naudience = "turnlog"\nissuer = "https://id.example"\n'

    def test_toml_and_json_say_the_same(self, tmp_path: Path) -> None:
        said = {
            "key_file": "key",
            "algorithms": ["HS256"],
            "audience": "turnlog",
            "issuer": "https://id.example",
        }
        files = [
            self.write(tmp_path, self.TOML, key=SECRET + b"\n"),
            self.write(tmp_path, json.dumps(said), "jwt.json"),
        ]
        for file in files:
            assert load_jwt_tokens(file)(signed(key=SECRET, algorithm="HS256"), NOW)

    def test_a_public_key_in_a_file(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, self.TOML.replace("HS256", "RS256"), key=pem(RSA))
        assert load_jwt_tokens(file)(signed(), NOW)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "missing required field `algorithms`"),
            ("key_file", "is not a JWT configuration"),
            (TOML + "secret = 1\n", "unknown field `secret`"),
            (TOML.replace('["HS256"]', '"HS256"'), "Expected `array`"),
            (TOML.replace("HS256", "none"), "expected algorithms out of"),
            (TOML.replace('"turnlog"', '""'), "an audience and an issuer"),
            (TOML.replace('"key"', '"nokey"'), "nokey: No such file or directory"),
        ],
    )
    def test_what_is_wrong_is_said(self, text: str, words: str, tmp_path: Path) -> None:
        with pytest.raises(CallerError) as refusal:
            load_jwt_tokens(self.write(tmp_path, text, key=SECRET))
        assert words in str(refusal.value)
        assert "jwt.toml" in str(refusal.value) or "nokey" in str(refusal.value)

    def test_a_file_that_is_not_text_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "jwt.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(CallerError, match="is not a JWT configuration"):
            load_jwt_tokens(tmp_path / "jwt.toml")


def test_the_server_works_without_pyjwt() -> None:
    script = (
        "import sys; sys.modules['jwt'] = None\n"
        "from turnlog.server import create_app\n"
        "from turnlog.server.auth.jwt import JwtTokens\n"
        "from turnlog.errors import CallerError\n"
        "try: JwtTokens(b'x' * 32, ['HS256'], 'a', 'b')\n"
        "except CallerError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "JSON Web Tokens need PyJWT: pip install 'turnlog[jwt]'\n"
