"""Private blobs in `turnlog export`, `import`, `prune`, `verify`, `convert` and `stats`."""

import base64
import json
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
from msgspec import structs

from tests.unit.cli.harness import GUIDE, Place, event
from turnlog.errors import NotFound
from turnlog.log import Blob, Log
from turnlog.log.blobs import MAX_PIECE_BYTES

STATE = b"the state of a runtime"
LARGE = b"\x00\xff large" * (MAX_PIECE_BYTES // 4)
MEDIA_TYPE = "application/octet-stream"


def checkpoint(number: int, name: str, channel: str | None = None) -> Any:
    payload = {"source": "f", "version": "1", "blob": name, "size_bytes": len(STATE)}
    scope = structs.replace(GUIDE, channel=channel)
    return event(number, "agent.checkpoint", payload, scope, "system")


def put(place: Place, data: bytes, session: str = "sess_1") -> str:
    return place.work(lambda log: log.put_blob(session, data, MEDIA_TYPE, private=True))


@pytest.fixture
def filled(place: Place) -> Place:
    """A log with a public blob and two private ones."""

    async def fill(log: Log) -> None:
        await log.create("", "sess_1")
        await log.put_blob("sess_1", STATE, "text/plain")

    place.work(fill)
    put(place, STATE)
    put(place, LARGE)
    return place


@pytest.fixture
def other(place: Place) -> Place:
    return Place(place.path.with_name("other.db"))


def private_names(place: Place) -> list[str]:
    return place.work(lambda log: log.private_blob_names("sess_1"))


def blob_lines(exported: bytes) -> list[Any]:
    return [json.loads(line) for line in exported.split(b"\n") if line.startswith(b'{"type":"blob"')]


def test_export_leaves_private_blobs_out_unless_asked(filled: Place) -> None:
    public = filled.run("export").stdout_bytes
    [line] = blob_lines(public)
    assert line["blob"] == f"sess_1/{sha256(STATE).hexdigest()}"
    assert b"private-" not in public

    whole = blob_lines(filled.run("export", "--private").stdout_bytes)
    assert {line["blob"] for line in whole[1:]} == set(private_names(filled))
    assert {line["sha256"] for line in whole[1:]} == {sha256(data).hexdigest() for data in (STATE, LARGE)}
    assert len(whole) > 3, "a large one is several lines"


def test_import_restores_private_blobs_as_private(filled: Place, other: Place) -> None:
    exported = filled.run("export", "--private").stdout_bytes
    assert other.run("import", input=exported).output.endswith("3 blobs stored\n")
    assert other.run("import", input=exported).exit_code == 0
    assert other.run("export", "--private").stdout_bytes == exported
    assert other.run("verify").exit_code == 0
    for name in private_names(filled):
        assert other.work(partial(Log.get_private_blob, session_id="sess_1", name=name)).is_private
        with pytest.raises(NotFound):
            other.work(partial(Log.get_blob, name=name))


def test_import_of_an_export_without_them_has_none(filled: Place, other: Place) -> None:
    other.run("import", input=filled.run("export").stdout_bytes)
    assert private_names(other) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"data": base64.b64encode(STATE[:-1] + b"!").decode()},
        {"sha256": sha256(b"other").hexdigest()},
        {"sha256": None},
        {"blob": "sess_1/private-xyz"},
        {"blob": "sess_1/private-" + "0" * 64},
    ],
)
def test_import_of_a_wrong_private_blob_is_refused(
    filled: Place, other: Place, fields: dict[str, object]
) -> None:
    lines = filled.run("export", "--private").stdout_bytes.split(b"\n")
    numbers = [
        number for number, line in enumerate(lines) if b"private-" in line and b'"size_bytes":22,' in line
    ]
    lines[numbers[0]] = json.dumps(json.loads(lines[numbers[0]]) | fields).encode()
    result = other.run("import", input=b"\n".join(lines))
    assert result.exit_code == 1
    assert f"Error: line {numbers[0] + 1}: " in result.stderr
    assert sha256(STATE).hexdigest() not in [name.rpartition("/")[2] for name in private_names(other)]


def test_a_private_blob_needs_its_hash_in_an_import(filled: Place, other: Place) -> None:
    lines = []
    for line in filled.run("export", "--private").stdout_bytes.removesuffix(b"\n").split(b"\n"):
        fields = json.loads(line)
        fields.pop("sha256", None)
        lines.append(json.dumps(fields).encode())
    result = other.run("import", input=b"\n".join(lines))
    assert "does not match its hash" in result.stderr


def test_a_damaged_private_blob_is_left_out_and_named(filled: Place) -> None:
    filled.spoil("update blob set data = x'00' where private")
    result = filled.run("export", "--private")
    assert len(blob_lines(result.stdout_bytes)) == 1
    assert result.stderr.count("warning: lost, and not in the export: sess_1: the blob ") == 2
    assert filled.run("verify").exit_code == 1


def test_convert_passes_over_private_blobs(filled: Place) -> None:
    exported = filled.run("export", "--private").stdout_bytes
    result = filled.run("convert", "--to", "turnlog", input=exported)
    assert (result.exit_code, result.stdout) == (0, "")


def test_backup_copies_private_blobs(filled: Place, other: Place) -> None:
    assert filled.run("backup", str(other.path)).exit_code == 0
    assert private_names(other) == private_names(filled)


def superseding(place: Place) -> tuple[list[str], str]:
    """A session with three checkpoints of one channel, one of another, and a blob that no event names."""
    names = [put(place, STATE + bytes([number])) for number in range(4)]
    unnamed = put(place, b"not named")
    events = [
        checkpoint(0, names[0]),
        checkpoint(1, names[3], "buyer"),
        checkpoint(2, names[1]),
        checkpoint(3, names[2]),
        checkpoint(4, f"sess_2/private-{'0' * 32}"),
    ]
    place.session("sess_1", events)
    return names, unnamed


def test_prune_removes_superseded_checkpoints_and_nothing_else(place: Place) -> None:
    names, unnamed = superseding(place)
    foreign = put(place, STATE, "sess_2")
    place.session("sess_2", [checkpoint(0, names[2]), checkpoint(1, foreign)])
    result = place.run("prune", "--older-than", "1s")
    assert result.output == "0 live events removed, 2 superseded checkpoints removed\n"
    assert private_names(place) == sorted([names[2], names[3], unnamed])
    assert place.work(lambda log: log.private_blob_names("sess_2")) == [foreign]
    assert place.run("prune", "--older-than", "1s").output == "0 live events removed\n"


def test_the_last_checkpoint_can_be_read_after_a_prune(place: Place) -> None:
    names, _ = superseding(place)
    place.run("prune", "--older-than", "1s")
    stored = place.work(lambda log: log.get_private_blob("sess_1", names[2]))
    assert stored == Blob(MEDIA_TYPE, STATE + b"\x02", is_private=True)
