"""What the scanner keeps of a text is bounded, however long the text goes on."""

import hashlib

from turnlog.parse import AgentStreamParser
from turnlog.parse.inline.tag_scanner import MAX_TAG_CHARS
from turnlog.team.markers import MarkerParser

TAG = '<agent-event type="t" />'
LINE = "x" * 1023 + "\n"


def test_scanner_in_a_fence_that_is_never_closed_refuses_64_ki_characters_of_it() -> None:
    parser = AgentStreamParser()
    shown = [parser.feed(piece).display_text for piece in ["```\n", TAG, *[LINE] * 70]]
    end = parser.flush()
    text = "".join(shown) + end.display_text
    assert text == "```\n" + TAG + LINE * 70
    raw = (TAG + LINE * 70)[:MAX_TAG_CHARS]
    (reject,) = end.rejects
    assert (reject.reason, reject.length) == ("unclosed_code", MAX_TAG_CHARS)
    assert reject.sha256 == hashlib.sha256(raw.encode()).hexdigest()


def test_scanner_in_a_marker_that_is_too_long_refuses_it_once_and_goes_on() -> None:
    parser = MarkerParser()
    pieces = ['a [JOB_HELP] {"suggestions": {"a": "', *["x" * 1024] * 70, '"}} b']
    found = [*map(parser.feed, pieces), parser.flush()]
    assert "".join(part.display_text for part in found) == "a b"
    assert [reject.reason for part in found for reject in part.rejects] == ["too_long"]
