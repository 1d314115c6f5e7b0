"""Files of messages in `turnlog export`, `import`, `verify` and `prune`."""

from functools import partial

import pytest

from tests.unit.cli.harness import Place, event
from turnlog.errors import NotFound
from turnlog.events import Scope
from turnlog.log import Log

FILE = b"Two tickets."
FORGOTTEN = b"never sent"


@pytest.fixture
def names(place: Place) -> tuple[str, str]:
    """A log with a message that names a file, and with an upload that no message names."""

    async def fill(log: Log) -> tuple[str, str]:
        await log.create("", "sess_1")
        name = await log.put_upload("sess_1", FILE, "text/plain")
        forgotten = await log.put_upload("sess_1", FORGOTTEN, "text/plain")
        await log.keep_uploads("sess_1", [name])
        part = {
            "type": "document",
            "src": f"api/blobs/{name}",
            "media_type": "text/plain",
            "title": "trip.txt",
        }
        message = event(1, "ui.message", {"text": "Look.", "content": [part]}, Scope(trace_id="tr_1"), "ui")
        await log.append("sess_1", [message])
        return name, forgotten

    return place.work(fill)


def test_export_and_import_have_the_file_and_verify_misses_one_that_is_gone(
    place: Place, names: tuple[str, str]
) -> None:
    name, _ = names
    exported = place.run("export").stdout_bytes
    other = Place(place.path.with_name("other.db"))
    assert other.run("import", input=exported).exit_code == 0
    assert other.work(partial(Log.get_blob, name=name)).data == FILE
    assert other.run("verify").exit_code == 0

    without = b"\n".join(
        line for line in exported.split(b"\n") if name.encode() not in line or b'"seq"' in line
    )
    third = Place(place.path.with_name("third.db"))
    assert third.run("import", input=without).exit_code == 0
    verified = third.run("verify")
    assert verified.exit_code == 1
    assert "is missing" in verified.output


def test_prune_removes_uploads_that_no_message_names(place: Place, names: tuple[str, str]) -> None:
    name, forgotten = names
    assert "upload" not in place.run("prune", "sess_1", "--older-than", "0s").output
    assert place.run("prune", "--older-than", "0s").output.endswith("1 upload removed\n")
    assert place.work(partial(Log.get_blob, name=name)).data == FILE
    with pytest.raises(NotFound):
        place.work(partial(Log.get_blob, name=forgotten))
