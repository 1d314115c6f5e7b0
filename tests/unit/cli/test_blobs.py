"""Blobs in `turnlog export`, `import`, `verify` and `convert`."""

import base64
import json
from hashlib import sha256

import pytest

from tests.unit.cli.harness import GUIDE, Place, error, event, said
from turnlog.log import Blob, Log
from turnlog.log.blobs import MAX_PIECE_BYTES

PICTURE = bytes(range(256)) * 10
LARGE = b"\x00\xff large" * (MAX_PIECE_BYTES // 4)


def address(session: str, data: bytes) -> str:
    return f"{session}/{sha256(data).hexdigest()}"


@pytest.fixture
def filled(place: Place) -> Place:
    """A log with a session whose events name a picture and a large file."""
    picture, file = (f"api/blobs/{address('sess_1', data)}" for data in (PICTURE, LARGE))
    result = {
        "call_id": "c1",
        "tool": "draw",
        "ok": True,
        "result": None,
        "images": [{"src": picture, "media_type": "image/png"}],
    }
    files = [{"file_id": "file_1", "filename": "f.bin", "storage_location": file}]
    place.session(
        "sess_1",
        [
            event(0, "tool.call", {"call_id": "c1", "tool": "draw", "args": {}}, GUIDE, "model"),
            event(1, "tool.result", result, GUIDE, "tool"),
            event(2, "assistant.files", {"files": files}, GUIDE, "model"),
        ],
    )
    place.session("sess_2", said("see api/blobs/sess_2/" + "0" * 64))

    async def put(log: Log) -> None:
        await log.put_blob("sess_1", PICTURE, "image/png")
        await log.put_blob("sess_1", LARGE, "application/octet-stream")
        await log.put_blob("sess_2", b"", "text/plain")

    place.work(put)
    return place


@pytest.fixture
def other(place: Place) -> Place:
    return Place(place.path.with_name("other.db"))


def stored(place: Place, session: str, data: bytes) -> Blob:
    return place.work(lambda log: log.get_blob(address(session, data)))


def changed(exported: bytes, place_of_it: int, **fields: object) -> bytes:
    """An export in which one line of a blob has other fields."""
    lines = exported.split(b"\n")
    blobs = [number for number, line in enumerate(lines) if line.startswith(b'{"type":"blob"')]
    number = blobs[place_of_it]
    lines[number] = json.dumps(json.loads(lines[number]) | fields).encode()
    return b"\n".join(lines)


def test_import_of_an_export_has_every_blob(filled: Place, other: Place) -> None:
    result = other.run("import", input=filled.run("export").stdout_bytes)
    assert result.output == "4 events added, 0 known already, 3 blobs stored\n"
    assert stored(other, "sess_1", PICTURE) == Blob("image/png", PICTURE)
    assert stored(other, "sess_1", LARGE) == Blob("application/octet-stream", LARGE)
    assert stored(other, "sess_2", b"") == Blob("text/plain", b"")
    assert other.run("verify").exit_code == 0


def test_import_twice_changes_nothing(filled: Place, other: Place) -> None:
    exported = filled.run("export").stdout_bytes
    other.run("import", input=exported)
    assert other.run("import", input=exported).exit_code == 0
    assert other.run("export").stdout_bytes == exported


def test_export_of_a_session_has_its_blobs_after_its_events_and_no_other(filled: Place) -> None:
    lines = [json.loads(line) for line in filled.run("export", "sess_1").stdout.splitlines()]
    kinds = [line["type"] for line in lines]
    first = kinds.index("blob")
    assert kinds[:first] == ["session", "tool.call", "tool.result", "assistant.files"]
    assert {line["blob"].partition("/")[0] for line in lines[first:]} == {"sess_1"}


def test_large_blob_is_several_lines_of_about_a_mebibyte(filled: Place) -> None:
    lines = filled.run("export", "sess_1").stdout_bytes.split(b"\n")
    pieces = [json.loads(line) for line in lines if address("sess_1", LARGE).encode() in line][1:]
    assert len(pieces) > 1
    assert max(map(len, lines)) < 1.1 * (1 << 20)
    assert b"".join(base64.b64decode(piece["data"]) for piece in pieces) == LARGE


@pytest.mark.parametrize(
    ("place_of_it", "fields", "problem"),
    [
        (0, {"data": ""}, "the content of blob sess_1/"),
        (-1, {"data": base64.b64encode(b"x").decode()}, "the content of blob sess_2/"),
        (0, {"blob": "sess_1/../../etc/passwd"}, "Expected `str` matching regex"),
        (0, {"blob": "sess_9/" + "0" * 64}, "expected the line of session sess_9 first"),
        (0, {"media_type": ""}, "Expected `str` of length >= 1"),
        (0, {"data": "not base64!"}, "Invalid base64"),
        (0, {"offset": 5}, "expected the piece of blob sess_1/"),
    ],
)
def test_import_of_a_wrong_blob_is_refused_with_its_line(
    filled: Place, other: Place, place_of_it: int, fields: dict[str, object], problem: str
) -> None:
    exported = changed(filled.run("export").stdout_bytes.removesuffix(b"\n"), place_of_it, **fields)
    result = other.run("import", input=exported)
    assert result.exit_code == 1
    assert problem in result.stderr
    assert "Error: line " in result.stderr


def test_import_of_half_a_blob_is_refused(filled: Place, other: Place) -> None:
    lines = filled.run("export", "sess_1").stdout_bytes.split(b"\n")[:-1]
    pieces = [line for line in lines if address("sess_1", LARGE).encode() in line][1:]
    result = other.run("import", input=b"\n".join([lines[0], pieces[0]]))
    assert "line 3: expected the piece of blob sess_1/" in error(result)


def test_damaged_blob_is_left_out_of_an_export_and_named(filled: Place) -> None:
    filled.spoil("update blob set data = x'00' where media_type = 'image/png'")
    result = filled.run("export")
    assert (result.exit_code, result.stdout.count('"media_type":"image/png","size')) == (0, 0)
    assert result.stderr.startswith("warning: lost, and not in the export: sess_1: the blob ")


def test_verify_reports_an_event_whose_blob_is_missing(filled: Place) -> None:
    filled.spoil("delete from blob where media_type = 'image/png'")
    result = filled.run("verify")
    digest = sha256(PICTURE).hexdigest()
    assert (result.exit_code, result.stdout) == (1, f"sess_1 seq 1: the blob {digest} is missing\n")


def test_verify_reports_a_blob_that_is_not_what_was_written(filled: Place) -> None:
    filled.spoil("update blob set data = x'00' where media_type = 'image/png'")
    result = filled.run("verify")
    assert result.exit_code == 1
    assert result.stdout == "sess_1: a document, snapshot or blob is not what was written\n"


def test_convert_of_an_export_passes_over_blobs(filled: Place) -> None:
    result = filled.run("convert", "--to", "turnlog", input=filled.run("export", "sess_1").stdout_bytes)
    assert (result.exit_code, result.stdout.count("data: ")) == (0, 3)
