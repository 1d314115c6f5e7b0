"""The addresses of blobs in payloads: relative to the server, `api/blobs/<session id>/<hash>`."""

import re
from itertools import islice
from typing import Any

BLOB_NAME_PATTERN = r"sess_[A-Za-z0-9_-]{1,64}/[0-9a-f]{64}"
BLOB_URL_PREFIX = "api/blobs/"
BLOB_URL_PATTERN = re.compile(rf"/?{BLOB_URL_PREFIX}({BLOB_NAME_PATTERN})")
# An address between other words, such as `![plan](api/blobs/...)`. Behind other characters of a URL it is an
# address of another server, and before others it has another hash.
TEXT_URL_PATTERN = re.compile(rf"(?<![\w/.:?&=#%-])/?{BLOB_URL_PREFIX}({BLOB_NAME_PATTERN})(?![\w/%-])")
MAX_TEXT_ADDRESSES = 100  # of one text: a person does not look at more pictures, and the map stays small


def find_blob_names(payload: Any) -> set[str]:
    """Return the names of the blobs whose address is a string in a JSON value."""
    names: set[str] = set()
    pending = [payload]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            match = BLOB_URL_PATTERN.fullmatch(value)
            if match:
                names.add(match[1])
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return names


def find_text_blob_names(text: str) -> set[str]:
    """Return the names of the blobs whose addresses are in a text: of the first `MAX_TEXT_ADDRESSES`."""
    return {match[1] for match in islice(TEXT_URL_PATTERN.finditer(text), MAX_TEXT_ADDRESSES)}
