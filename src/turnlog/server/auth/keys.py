"""Files of the server: its key and its address (beside the log, private), and the tokens it accepts."""

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from turnlog.app import LOCAL, Principal
from turnlog.app.membership import GUEST_PREFIX
from turnlog.errors import BadInput, CallerError, quote
from turnlog.events import SessionMember
from turnlog.events.payload import MAX_NAME_BYTES
from turnlog.events.roles import SERVER_ROLES
from turnlog.events.strict_json import convert_strict
from turnlog.log import find_store_opener, sqlite_path
from turnlog.server.auth.private_files import write_private_temp_file

KEY_BYTES = 32
KEY_VARIABLE = "TURNLOG_KEY"
MIN_SECRET_BYTES = 32  # as a base64 text of 24 random bytes has
MIN_TOKEN_CHARS = 24  # a shorter token could be guessed


class TokenEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A principal in a token file: the hash of its token, and its server roles."""

    sha256: str
    roles: tuple[str, ...] = ()


def load_or_create_key(log_url: str) -> bytes:
    """Return the key of a log, from a file beside it that is created if needed. Raise `CallerError`.

    A log in memory has no file: its key is new in each process. Servers that share a log must have the same
    key, which has to be given to each of them.
    """
    if not is_local_log(log_url):
        find_store_opener(log_url)  # an address that no store opens is the first thing to say
        raise CallerError(
            f"servers that share a log need the same signing key: give each one --key-file or {KEY_VARIABLE}"
        )
    file = log_sibling_path(log_url, ".key")
    if file is None:
        return secrets.token_bytes(KEY_BYTES)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return read_key(file) if file.exists() else create_key(file)
    except OSError as error:
        raise CallerError(f"cannot store the server's key in {file}: {error.strerror}") from None


def is_local_log(log_url: str) -> bool:
    """Return whether a log belongs to one process of this machine."""
    return log_url.startswith(("memory:", "sqlite:"))


def derive_key(secret: bytes, source: str) -> bytes:
    """Return the key that a secret text stands for. Raise `CallerError` if it can be guessed."""
    text = secret.strip()
    if len(text) < MIN_SECRET_BYTES:
        raise CallerError(f"expected at least {MIN_SECRET_BYTES} random characters in {source}")
    return sha256(b"turnlog key:" + text).digest()


def read_key_file(file: Path) -> bytes:
    """Return the key of a file with a secret text. Raise `CallerError` if everyone can read the file."""
    try:
        if file.stat().st_mode & 0o007:
            raise CallerError(f"{file} can be read by everyone: make it private (chmod 600 {file.name})")
        return derive_key(file.read_bytes(), str(file))
    except OSError as error:
        raise CallerError(f"cannot read {file}: {error.strerror}") from None


def log_sibling_path(log_url: str, suffix: str) -> Path | None:
    """Return the path of the log's file with a suffix; None for a log that is not a file."""
    if not log_url.startswith("sqlite:"):
        return None
    file = sqlite_path(log_url)
    return file.with_name(file.name + suffix)


def create_key(file: Path) -> bytes:
    """Write a new key and return it. Of two processes one wins. The file is never incomplete."""
    with write_private_temp_file(file, secrets.token_bytes(KEY_BYTES)) as name, suppress(FileExistsError):
        os.link(name, file)
    return read_key(file)


class RunningServer(msgspec.Struct):
    """The address of a server, and the start id of its sign-in codes; "" if it has no sign-in links."""

    address: str
    start: str = ""


def write_server_file(log_url: str, server: RunningServer) -> None:
    file = log_sibling_path(log_url, ".server")
    if file is None:
        return
    with write_private_temp_file(file, msgspec.json.encode(server)) as name:
        os.replace(name, file)


def read_server_file(log_url: str) -> RunningServer | None:
    """Return the last server of a log, which may not run any more; None if there is no file."""
    file = log_sibling_path(log_url, ".server")
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunningServer) if file else None
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def delete_server_file(log_url: str) -> None:
    file = log_sibling_path(log_url, ".server")
    if file is not None:
        file.unlink(missing_ok=True)


def read_key(file: Path) -> bytes:
    """Return the key in a file. Raise `CallerError` if it is not a key, or if others can read it."""
    if file.stat().st_mode & 0o077:
        raise CallerError(f"{file} can be read by others: make it private (chmod 600 {file.name})")
    key = file.read_bytes()
    if len(key) != KEY_BYTES:
        raise CallerError(f"{file} is not a key: remove it, then the server makes a new one")
    return key


def read_token_entries(file: Path) -> dict[str, Principal]:
    try:
        entries = msgspec.json.decode(file.read_bytes(), type=dict[str, TokenEntry])
    except OSError as error:
        raise CallerError(f"cannot read {file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise CallerError(f"{file} is not a token file: {error}") from None

    principals: dict[str, Principal] = {}
    for name, entry in entries.items():
        check_principal(name, entry.roles)
        if len(entry.sha256) != 64 or not set(entry.sha256) <= set("0123456789abcdef"):
            raise CallerError(f"{file}: expected the SHA-256 of {name}'s token as 64 hex digits")
        if entry.sha256 in principals:
            raise CallerError(f"{file}: two names have the same token")
        principals[entry.sha256] = Principal(name, frozenset(entry.roles))
    return principals


def encode_tokens(tokens: dict[str, TokenEntry]) -> str:
    for name, entry in tokens.items():
        check_principal(name, entry.roles)
    return msgspec.json.encode(tokens).decode()


def check_principal(name: str, roles: Sequence[str]) -> None:
    """Raise `CallerError` for a name that no session accepts, or for a role that is not a server role."""
    for role in roles:
        if role not in SERVER_ROLES:
            raise CallerError(f"expected a server role, {format_server_roles()}, got {quote(role)}")
    if name == LOCAL.name or name.startswith(GUEST_PREFIX):
        raise CallerError(f"{quote(name)} is reserved for the server: choose another name")
    if ":" in name:
        raise CallerError(f"expected a name without a colon, as names of a provider have, got {quote(name)}")
    if not is_convertible({"principal": name}, SessionMember):
        raise CallerError(
            f"expected a name of at most {MAX_NAME_BYTES} bytes without control characters, got {quote(name)}"
        )


def format_server_roles() -> str:
    *others, last = sorted(SERVER_ROLES)
    return f"{', '.join(others)} or {last}"


def is_convertible(value: object, type_: Any) -> bool:
    try:
        convert_strict(value, type_)
    except BadInput:
        return False
    return True
