"""The server's key, where it runs, and the tokens it accepts, as files; two are its owner's alone."""

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from turnlog.app import LOCAL, Principal
from turnlog.errors import BadInput, CallerError, quote
from turnlog.events import SessionMember
from turnlog.events.payload import MAX_NAME_BYTES
from turnlog.events.roles import SERVER_ROLES
from turnlog.events.strict_json import convert_strict
from turnlog.log import sqlite_path
from turnlog.server.auth.credentials import GUEST_PREFIX
from turnlog.server.auth.private_files import write_private_temp_file

KEY_BYTES = 32
MIN_TOKEN_CHARS = 24  # fewer could be guessed


class TokenEntry(msgspec.Struct, forbid_unknown_fields=True):
    """What a file of tokens says of one principal: the hash of its token, and its server roles."""

    sha256: str
    roles: tuple[str, ...] = ()


def load_or_create_key(log_url: str) -> bytes:
    """The key of a log: in a file beside it, made when it is first needed; a log in memory has a new one."""
    file = log_sibling_path(log_url, ".key")
    if file is None:
        return secrets.token_bytes(KEY_BYTES)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return read_key(file) if file.exists() else create_key(file)
    except OSError as error:
        raise CallerError(f"cannot keep the server's key in {file}: {error.strerror}") from None


def log_sibling_path(log_url: str, suffix: str) -> Path | None:
    """Return the file beside a log whose name has an ending of its own; None for a log that is no file."""
    if not log_url.startswith("sqlite:"):
        return None
    file = sqlite_path(log_url)
    return file.with_name(file.name + suffix)


def create_key(file: Path) -> bytes:
    """A new key in a file; of two that make it at once one wins, and it is never there by half."""
    with write_private_temp_file(file, secrets.token_bytes(KEY_BYTES)) as name, suppress(FileExistsError):
        os.link(name, file)
    return read_key(file)


class RunningServer(msgspec.Struct):
    """Where the server of a log is, and the start that its sign-in codes name; none: links do not sign in."""

    address: str
    start: str = ""


def write_server_file(log_url: str, server: RunningServer) -> None:
    """Note beside a log where its server is."""
    file = log_sibling_path(log_url, ".server")
    if file is None:
        return
    with write_private_temp_file(file, msgspec.json.encode(server)) as name:
        os.replace(name, file)


def read_server_file(log_url: str) -> RunningServer | None:
    """Return where the server of a log is, as it noted; it may have died since. None if none has."""
    file = log_sibling_path(log_url, ".server")
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunningServer) if file else None
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def delete_server_file(log_url: str) -> None:
    """Remove the note that a server left."""
    if file := log_sibling_path(log_url, ".server"):
        file.unlink(missing_ok=True)


def read_key(file: Path) -> bytes:
    """The key in a file; one that others can read, or that is none, is refused."""
    if file.stat().st_mode & 0o077:
        raise CallerError(f"{file} can be read by others: make it yours alone (chmod 600 {file.name})")
    key = file.read_bytes()
    if len(key) != KEY_BYTES:
        raise CallerError(f"{file} is not a key: remove it, and everybody signs in again")
    return key


def read_token_entries(file: Path) -> dict[str, Principal]:
    """The principals of a file of tokens, by the hash of their token."""
    try:
        lines = msgspec.json.decode(file.read_bytes(), type=dict[str, TokenEntry])
    except OSError as error:
        raise CallerError(f"cannot read {file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise CallerError(f"{file} is not a file of tokens: {error}") from None
    for name, line in lines.items():
        check_principal(name, line.roles)
        if len(line.sha256) != 64 or not set(line.sha256) <= set("0123456789abcdef"):
            raise CallerError(f"{file}: expected the SHA-256 of {name}'s token as 64 hex digits")
    found = {line.sha256: Principal(name, frozenset(line.roles)) for name, line in lines.items()}
    if len(found) < len(lines):
        raise CallerError(f"{file}: two names have the same token")
    return found


def encode_tokens(tokens: dict[str, TokenEntry]) -> str:
    """What a file of tokens says, as JSON."""
    for name, line in tokens.items():
        check_principal(name, line.roles)
    return msgspec.json.encode(tokens).decode()


def check_principal(name: str, roles: Sequence[str]) -> None:
    """Refuse who cannot be a member of a session."""
    for role in roles:
        if role not in SERVER_ROLES:
            raise CallerError(f"expected a server role, {format_server_roles()}, got {quote(role)}")
    if name == LOCAL.name or name.startswith(GUEST_PREFIX):
        raise CallerError(f"{quote(name)} is a name of the server's own: expected another one")
    if ":" in name:
        raise CallerError(f"expected a name without a colon, as names of a provider have, got {quote(name)}")
    if not is_convertible({"principal": name}, SessionMember):
        said = f"a name of at most {MAX_NAME_BYTES} bytes without control characters"
        raise CallerError(f"expected {said}, got {quote(name)}")


def format_server_roles() -> str:
    """The server roles in a sentence."""
    *others, last = sorted(SERVER_ROLES)
    return f"{', '.join(others)} or {last}"


def is_convertible(value: object, type_: Any) -> bool:
    """Whether a value is of a kind."""
    try:
        convert_strict(value, type_)
    except BadInput:
        return False
    return True
