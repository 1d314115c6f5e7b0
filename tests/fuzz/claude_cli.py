"""The stdout of a Claude CLI process: everything is storable and closed, however the bytes are cut."""

from collections.abc import Iterable

from tests.fuzz.cuts import cuttings
from tests.support.claude_vectors import assert_lawful, counting
from turnlog.events import EventDraft
from turnlog.parse import CliParser, SentMessage


def parse_pieces(pieces: Iterable[bytes]) -> list[EventDraft]:
    parser = CliParser(counting())
    parser.expect("u-1", SentMessage("tr_1"))
    return [said for piece in pieces for said in parser.feed(piece)] + parser.flush()


def target(data: bytes) -> None:
    whole = parse_pieces([data])
    assert_lawful(whole)
    for pieces in cuttings(data):
        assert parse_pieces(pieces) == whole, len(pieces)
