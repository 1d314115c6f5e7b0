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
from turnlog.events.payload import NAME_BYTES
from turnlog.events.roles import SERVER_ROLES
from turnlog.events.strict_json import convert
from turnlog.log import sqlite_path
from turnlog.server.auth.credentials import GUEST
from turnlog.server.auth.private_files import private_file

KEY_BYTES = 32
TOKEN_CHARS = 24  # fewer could be guessed


class TokenLine(msgspec.Struct, forbid_unknown_fields=True):
    """What a file of tokens says of one principal: the hash of its token, and its server roles."""

    sha256: str
    roles: tuple[str, ...] = ()


def key_of(log_url: str) -> bytes:
    """The key of a log: in a file beside it, made when it is first needed; a log in memory has a new one."""
    file = file_beside(log_url, ".key")
    if file is None:
        return secrets.token_bytes(KEY_BYTES)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return known_key(file) if file.exists() else new_key(file)
    except OSError as error:
        raise CallerError(f"cannot keep the server's key in {file}: {error.strerror}") from None


def file_beside(log_url: str, ending: str) -> Path | None:
    """Return the file beside a log whose name has an ending of its own; None for a log that is no file."""
    if not log_url.startswith("sqlite:"):
        return None
    file = sqlite_path(log_url)
    return file.with_name(file.name + ending)


def new_key(file: Path) -> bytes:
    """A new key in a file; of two that make it at once one wins, and it is never there by half."""
    with private_file(file, secrets.token_bytes(KEY_BYTES)) as name, suppress(FileExistsError):
        os.link(name, file)
    return known_key(file)


class Running(msgspec.Struct):
    """Where the server of a log is, and the start that its sign-in codes name; none: links do not sign in."""

    address: str
    start: str = ""


def write_running(log_url: str, running: Running) -> None:
    """Note beside a log where its server is."""
    file = file_beside(log_url, ".server")
    if file is None:
        return
    with private_file(file, msgspec.json.encode(running)) as name:
        os.replace(name, file)


def read_running(log_url: str) -> Running | None:
    """Return where the server of a log is, as it noted; it may have died since. None if none has."""
    file = file_beside(log_url, ".server")
    try:
        return msgspec.json.decode(file.read_bytes(), type=Running) if file else None
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def forget_running(log_url: str) -> None:
    """Remove the note that a server left."""
    if file := file_beside(log_url, ".server"):
        file.unlink(missing_ok=True)


def known_key(file: Path) -> bytes:
    """The key in a file; one that others can read, or that is none, is refused."""
    if file.stat().st_mode & 0o077:
        raise CallerError(f"{file} can be read by others: make it yours alone (chmod 600 {file.name})")
    key = file.read_bytes()
    if len(key) != KEY_BYTES:
        raise CallerError(f"{file} is not a key: remove it, and everybody signs in again")
    return key


def tokens_in(file: Path) -> dict[str, Principal]:
    """The principals of a file of tokens, by the hash of their token."""
    try:
        lines = msgspec.json.decode(file.read_bytes(), type=dict[str, TokenLine])
    except OSError as error:
        raise CallerError(f"cannot read {file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise CallerError(f"{file} is not a file of tokens: {error}") from None
    for name, line in lines.items():
        check_member(name, line.roles)
        if len(line.sha256) != 64 or not set(line.sha256) <= set("0123456789abcdef"):
            raise CallerError(f"{file}: expected the SHA-256 of {name}'s token as 64 hex digits")
    found = {line.sha256: Principal(name, frozenset(line.roles)) for name, line in lines.items()}
    if len(found) < len(lines):
        raise CallerError(f"{file}: two names have the same token")
    return found


def lines_of(tokens: dict[str, TokenLine]) -> str:
    """What a file of tokens says, as JSON."""
    for name, line in tokens.items():
        check_member(name, line.roles)
    return msgspec.json.encode(tokens).decode()


def check_member(name: str, roles: Sequence[str]) -> None:
    """Refuse who cannot be a member of a session."""
    for role in roles:
        if role not in SERVER_ROLES:
            raise CallerError(f"expected a server role, {named_roles()}, got {quote(role)}")
    if name == LOCAL.name or name.startswith(GUEST):
        raise CallerError(f"{quote(name)} is a name of the server's own: expected another one")
    if ":" in name:
        raise CallerError(f"expected a name without a colon, as names of a provider have, got {quote(name)}")
    if not fits({"principal": name}, SessionMember):
        said = f"a name of at most {NAME_BYTES} bytes without control characters"
        raise CallerError(f"expected {said}, got {quote(name)}")


def named_roles() -> str:
    """The server roles in a sentence."""
    *others, last = sorted(SERVER_ROLES)
    return f"{', '.join(others)} or {last}"


def fits(value: object, kind: Any) -> bool:
    """Whether a value is of a kind."""
    try:
        convert(value, kind)
    except BadInput:
        return False
    return True
