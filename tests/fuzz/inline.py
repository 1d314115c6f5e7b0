"""The laws of every scanner of model text: tags, markers, or both."""

from collections.abc import Callable, Iterable

from tests.fuzz.cuts import cuttings
from turnlog.parse import AgentStreamParser, ParsedText

MIN_ELEMENT_CHARS = 9  # `[JOB_HELP` without its end is the shortest that can leave a reject


def parse_pieces(parser: AgentStreamParser, pieces: Iterable[str]) -> ParsedText:
    parts = [*(parser.feed(piece) for piece in pieces), parser.flush()]
    return ParsedText(
        "".join(part.display_text for part in parts),
        [event for part in parts for event in part.events],
        [reject for part in parts for reject in part.rejects],
    )


def check_scanner(data: bytes, make: Callable[[], AgentStreamParser]) -> None:
    # Bytes that are no UTF-8 become lone surrogates, which a model's stream can hold.
    text = data.decode(errors="surrogateescape")
    parser = make()
    whole = parse_pieces(parser, [text])
    assert parse_pieces(parser, [text]) == whole, "after flush a parser is as new"
    for pieces in cuttings(text):
        assert parse_pieces(make(), pieces) == whole, len(pieces)

    assert len(whole.display_text) <= len(text)
    assert all(0 < reject.length <= len(text) for reject in whole.rejects)
    assert (len(whole.events) + len(whole.rejects)) * MIN_ELEMENT_CHARS <= len(text)
    if not whole.events and not whole.rejects:
        assert whole.display_text == text
