"""Files in a history of the OpenAI Responses API: `input_image` and `input_file` items with data URIs. Pure.

A file of a message becomes a content item, and text files become texts. A state has each file once, as bytes:
a run that waits repeats its history, and base64 makes a third more. `detach_files` takes the data URIs out,
also those of tool results, and `restore_files` puts them back. The oldest beyond `MAX_SAVED_FILES_BYTES`
become `DROPPED_TEXT`.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from turnlog.adapters.part_files import DROPPED_TEXT, MAX_SAVED_FILES_BYTES, PartFile
from turnlog.adapters.runner import Part

FILE_FIELDS: Mapping[str, str] = {"input_image": "image_url", "input_file": "file_data"}  # by item type
DATA_PREFIX = "data:"
DATA_MARK = ";base64,"
REFERENCE_PREFIX = "turnlog-file:"


class SavedFile(msgspec.Struct):
    """A file of a history. `head` is its data URI up to the data."""

    head: str
    data: bytes


class DetachedFiles(NamedTuple):
    """Histories with references in place of files, and the files by reference."""

    values: list[Any]
    files: dict[str, SavedFile]


def make_user_message(part: Part) -> dict[str, Any]:
    """Return the message of a part as an input item: its text, or the text and the files."""
    if not part.files:
        return {"role": "user", "content": part.message or ""}
    items = [{"type": "input_text", "text": part.message or ""}]
    return {"role": "user", "content": [*items, *(make_file_item(file) for file in part.files)]}


def make_file_item(file: PartFile) -> dict[str, Any]:
    if file.is_text:
        return {"type": "input_text", "text": file.describe_text()}
    uri = file.to_data_uri()
    if file.is_image:
        return {"type": "input_image", "image_url": uri, "detail": "auto"}
    # the API refuses a file without a name
    return {"type": "input_file", "filename": file.name or "file", "file_data": uri}


def detach_files(values: list[Any]) -> DetachedFiles:
    """Return JSON values with references in place of their data URIs."""
    found: dict[str, SavedFile] = {}

    def detach(uri: str) -> str | None:
        file = read_data_uri(uri)
        if file is None:
            return uri
        digest = sha256(file.head.encode(errors="surrogatepass") + file.data).hexdigest()
        reference = REFERENCE_PREFIX + digest
        found.pop(reference, None)  # the order is that of the last use
        found[reference] = file
        return reference

    detached = convert_files(values, detach)
    kept = keep_newest(found)
    dropped = found.keys() - kept.keys()
    if dropped:
        detached = convert_files(detached, lambda uri: None if uri in dropped else uri)
    return DetachedFiles(detached, kept)


def keep_newest(files: dict[str, SavedFile]) -> dict[str, SavedFile]:
    """Return the last files that fit. A smaller file is kept behind one that does not fit."""
    kept: dict[str, SavedFile] = {}
    size_bytes = 0
    for reference, file in reversed(files.items()):
        if size_bytes + len(file.data) <= MAX_SAVED_FILES_BYTES:
            kept[reference] = file
            size_bytes += len(file.data)
    return kept


def restore_files(value: Any, files: Mapping[str, SavedFile]) -> Any:
    """Return a JSON value with the data URIs that `detach_files` has taken out of it."""

    def restore(uri: str) -> str:
        file = files.get(uri)
        return uri if file is None else f"{file.head}{b64encode(file.data).decode()}"

    return convert_files(value, restore) if files else value


def convert_files(value: Any, convert: Callable[[str], str | None]) -> Any:
    """Return a copy with other URIs in its file items, at any depth. An item without a URI is dropped."""
    if isinstance(value, list):
        return [convert_files(item, convert) for item in value]
    if not isinstance(value, dict):
        return value
    converted = {key: convert_files(item, convert) for key, item in value.items()}
    field = FILE_FIELDS.get(str(value.get("type")))
    uri = value.get(field) if field is not None else None
    if field is None or not isinstance(uri, str):
        return converted
    uri = convert(uri)
    if uri is None:
        return {"type": "input_text", "text": DROPPED_TEXT}
    return {**converted, field: uri}


def read_data_uri(uri: str) -> SavedFile | None:
    """Return the content of a data URI; None for an address of another kind."""
    head, mark, text = uri.partition(DATA_MARK)
    if not head.startswith(DATA_PREFIX) or not mark:
        return None
    try:
        return SavedFile(head + mark, b64decode(text, validate=True))
    except ValueError:
        return None
