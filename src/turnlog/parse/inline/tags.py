"""The scanner of model text: one message in; text to show, events and rejects out (docs/protocol.md 5).

It finds inline tags, and with other `Openers` also markers (`marker_scanner`), in document order.

    <agent-event type="NAME" data='{"JSON": "object"}' nonce="..." />       in any order; data is optional

Invariants: however the input is cut, the result is the same. After each feed, all text is returned that can
no longer be part of an element or of the white space before one. A tag becomes an event or a `ParseReject`,
never text. A tag in code is text: in a fence, a code span that ends on its line, a quoted line (`>`), an HTML
comment. If a fence or a comment never ends, its first tag becomes a reject too. `display_text` decides which
white space an element leaves. Limit: 64 KiB. A longer tag is refused and skipped to its end, or to where it
stops being JSON. `<agent-event ...>` is refused with everything up to `</agent-event>`; if that does not come
within the limit, only the opener is refused. JSON is repaired for the three dialects of quotes only.
"""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum, auto
from typing import Any

import msgspec

from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import EventType, Origin, ParseReject, Vocabulary
from turnlog.events.strict_json import decode_strict_json, may_overflow_double
from turnlog.parse.inline.display_text import DisplayText
from turnlog.parse.inline.markdown_code import MULTILINE_MODES, LineLookahead, may_open_block
from turnlog.parse.inline.marker_scanner import Marker, OpenMarker
from turnlog.parse.inline.parsed_text import ParsedText, TagEvent
from turnlog.parse.inline.tag_scanner import MAX_TAG_CHARS, NEED_MORE, TAG_START, WHITESPACE, TagScanner
from turnlog.parse.rejects import make_text_reject

MAX_DEFERRED_CHARS = 256  # a tag that begins this near to the end of a chunk waits for the next chunk
END_TAG = "</agent-event>"

_EDGE = WHITESPACE + "<\\"  # after such a character a chunk is not finished
_WHOLE_SPANS = re.compile(r"(?:[^`\\]*+`[^`\n]++`(?!`))++[^`\\]++").fullmatch  # ordinary text but for code
_TYPE_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_TAG_PATTERN = rf"{TAG_START}(?=[{WHITESPACE}/>])"


class ScanState(IntEnum):  # hashed for each chunk: an int is faster than a member of Enum
    """Where the scanner is in the text."""

    TEXT = auto()
    LOOKAHEAD = auto()  # before an opener after a backtick: the rest of the line decides if it is code
    TAG = auto()
    PAIRED = auto()  # after `<agent-event ...>`, up to `</agent-event>`
    SKIPPING = auto()  # in a tag that is too long and has its reject
    MARKER = auto()


class Openers:
    """The strings that begin an element: the opener of tags, and the markers, which begin with `[`."""

    def __init__(self, *, tags: bool = True, markers: Mapping[str, Marker] | None = None) -> None:
        self.markers: Mapping[str, Marker] = markers or {}
        self._openers = (TAG_START, *self.markers) if tags else tuple(self.markers)
        self.longest = max(map(len, self._openers))
        patterns = [_TAG_PATTERN if opener == TAG_START else re.escape(opener) for opener in self._openers]
        self.find = re.compile("|".join(patterns)).search

    def find_partial(self, text: str, at: int) -> int:
        """Return where an opener may begin that is cut by the end of the text; -1 if there is none."""
        start = max(at, len(text) - self.longest)
        index = max(text.rfind("<", start), text.rfind("[", start))
        if index < 0:
            return -1
        beginning = text[index:]
        if any(opener.startswith(beginning) for opener in self._openers):
            return index
        return -1


TAG_OPENERS = Openers()


class StrippedText(msgspec.Struct):
    """A whole text without its tags, and the events and rejects of the tags."""

    display: str
    events: list[TagEvent]
    rejects: list[ParseReject]


def _parse_json_object(text: str) -> tuple[dict[str, Any], bytes] | None:
    for repair in _QUOTE_REPAIRS:
        try:
            body = repair(text).encode()
            # A flat object: the checks of strict JSON need no walk.
            if body.count(b"{") + body.count(b"[") == 1:
                data = _FLAT.decode(body)
                if body.count(b":") == len(data) and not may_overflow_double(body):
                    return data, body
            return decode_strict_json(body, _JSON_OBJECT), body
        except (BadInput, msgspec.DecodeError, ValueError):
            continue
    return None


def _halve_backslashes(text: str) -> str:
    return _BACKSLASHES.sub(lambda run: run[0][: len(run[0]) // 2], text)


def _straighten_quotes(text: str) -> str:
    return text.translate(_SMART_QUOTES)


_JSON_OBJECT = dict[str, Any]
_FLAT = msgspec.json.Decoder(_JSON_OBJECT)
_BACKSLASHES = re.compile(r'(?<!\\)\\++(?=")')
_SMART_QUOTES = str.maketrans("‘’“”", "''\"\"")
_QUOTE_REPAIRS: tuple[Callable[[str], str], ...] = (str, _halve_backslashes, _straighten_quotes)


class AgentStreamParser:
    """Takes the tags out of model text while it streams. After `flush` it is ready for the next message."""

    def __init__(
        self,
        vocabulary: Vocabulary | None = None,
        origin: Origin = "model",
        nonce: str | None = None,
        openers: Openers = TAG_OPENERS,
    ) -> None:
        self._vocabulary = vocabulary
        self._origin = origin
        self._nonce = nonce
        self._openers = openers
        self._reset()

    def _reset(self) -> None:
        self._state = ScanState.TEXT
        self._display = DisplayText()
        self._can_pass_through = False  # whether ordinary text may be returned without scanning
        self._is_final = False  # no more text comes

        self._tag = TagScanner()  # the open tag, in the states TAG, PAIRED and SKIPPING
        self._tag_parts: list[str] = []  # the text of the open tag so far
        self._marker: OpenMarker | None = None  # in the state MARKER
        self._lookahead: LineLookahead | None = None  # in the state LOOKAHEAD
        self._unscanned: list[str] = []  # text that waits: half an opener, or text that cannot end a tag
        self._pending_chars = 0  # characters of the open element and of the unscanned text

        self._unclosed_code: list[str] | None = None  # from the first element in an open fence or comment on
        self._unclosed_code_chars = 0
        self._closed_count_before = 0  # fences and comments that had ended before that element
        self._partial_opener = ""  # half an opener that was shown in a fence or comment
        self._start_feed("")

    def _start_feed(self, text: str) -> None:
        self._text = text  # the text that this feed scans
        self._no_closer_before = 0  # no closing tag follows an opener that ends before this index
        self._events: list[TagEvent] = []
        self._rejects: list[ParseReject] = []

    def feed(self, chunk: str) -> ParsedText:
        """Scan the next piece of text. Return everything that is decided by now."""
        # Most chunks are ordinary text: no element, no code and no white space at the end.
        if (
            self._can_pass_through
            and ("`" not in chunk or _WHOLE_SPANS(chunk))
            and ("<" not in chunk or ("<a" not in chunk and "<!" not in chunk))
            and ("\n" not in chunk or not may_open_block(chunk))
            and ("[" not in chunk or not self._openers.markers)
            and chunk
        ):
            display = self._display
            if chunk[-1] not in _EDGE:
                if display.held_space:
                    chunk = display.held_space + chunk
                    display.held_space = ""
                return ParsedText(chunk, [], [])
            if chunk[-1] == " " and chunk[-2:-1] not in _EDGE:
                chunk = display.held_space + chunk[:-1]
                display.held_space = " "
                return ParsedText(chunk, [], [])

        if self._state is not ScanState.TEXT and self._defer_chunk(chunk):
            return ParsedText("", [], [])

        self._start_feed(self._take_unscanned() + chunk)
        if self._partial_opener:
            self._complete_partial_opener(chunk)
        self._scan(0)

        display = self._display
        is_plain = not self._unscanned and not display.code.pending and display.code.mode == "prose"
        self._can_pass_through = is_plain and display.has_output and display.removed_gap is None
        return ParsedText(display.drain(), self._events, self._rejects)

    def flush(self) -> ParsedText:
        """End the message: decide all text that waits."""
        self._is_final = True
        self._start_feed(self._take_unscanned())
        if self._state is ScanState.LOOKAHEAD:
            self._scan(0)
            self._text = self._take_unscanned()
        if self._state is ScanState.PAIRED:
            self._scan(self._reject_unpaired(0))
            self._text = self._take_unscanned()
        if self._marker is not None:
            self._marker.flush()
            self._close_marker(self._marker)

        if self._state is ScanState.TEXT:
            self._write(self._text)
            self._reject_unclosed_code()
            self._display.end()
        elif self._state is not ScanState.SKIPPING:
            self._tag.feed(self._text, 0)
            self._reject_tag("unclosed", "".join(self._tag_parts) + self._text)

        parsed = ParsedText(self._display.drain(), self._events, self._rejects)
        self._reset()
        return parsed

    def _take_unscanned(self) -> str:
        text = "".join(self._unscanned)
        self._unscanned = []
        return text

    def _defer_chunk(self, chunk: str) -> bool:
        if self._lookahead is not None:
            return self._defer_undecided(self._lookahead, chunk)
        if self._state is ScanState.MARKER:
            return False
        return self._defer(chunk)

    def _defer(self, text: str) -> bool:
        """Store text unscanned if it cannot end the open tag. Return False, and store nothing, if it can."""
        size = self._pending_chars + len(text)
        if size > MAX_TAG_CHARS or ">" in text or "<" in text:
            return False
        # A skipped tag also ends at a line break in quotes.
        if "\n" in text and self._state is ScanState.SKIPPING:
            return False

        self._pending_chars = size
        self._unscanned.append(text)
        return True

    def _defer_undecided(self, lookahead: LineLookahead, chunk: str) -> bool:
        self._pending_chars += len(chunk)
        if self._pending_chars > MAX_TAG_CHARS or lookahead.feed(chunk, 0, len(chunk)) is not None:
            return False
        self._unscanned.append(chunk)
        return True

    # The _scan methods take the index to scan from, and return the next one or NEED_MORE.

    def _scan(self, at: int) -> None:
        if self._state is ScanState.LOOKAHEAD:
            self._state = ScanState.TEXT
            self._lookahead = None
        while 0 <= at < len(self._text):
            at = SCANNERS[self._state](self, at)
        self._text = ""

    def _scan_text(self, at: int) -> int:
        text = self._text
        while match := self._openers.find(text, at):
            self._write(text[at : match.start()])
            at = match.start()
            code_end = self._find_code_end(at, match.end())
            if code_end == NEED_MORE:
                self._unscanned = [text[at:]]
                self._pending_chars = len(text) - at
                return NEED_MORE
            if code_end == at:
                return self._open_element(match[0], match.end())
            self._write_code(text[at:code_end])
            at = code_end

        partial = self._openers.find_partial(text, at)
        if partial < 0:
            self._write(text[at:])
            return NEED_MORE
        self._write(text[at:partial])
        code = self._display.code
        if code.next_is_code() and not code.open_runs:
            # In a fence or a comment half an opener is text; the next chunk may make it an element in code.
            self._partial_opener = text[partial:]
            self._write(text[partial:])
        else:
            self._unscanned = [text[partial:]]
        return NEED_MORE

    def _find_code_end(self, at: int, opener_end: int) -> int:
        """Return where the code around an opener ends; `at` if there is none, NEED_MORE if that is open."""
        code = self._display.code
        if not code.next_is_code():
            return at
        if not code.open_runs:
            return opener_end  # in a fence, comment or quote: the text after the opener is scanned again

        lookahead = LineLookahead(code)
        size = len(self._text)
        is_code = lookahead.feed(self._text, at, min(size, at + MAX_TAG_CHARS))
        if is_code is None and size - at <= MAX_TAG_CHARS:
            if not self._is_final:
                self._state = ScanState.LOOKAHEAD
                self._lookahead = lookahead
                return NEED_MORE
            is_code = lookahead.flush(size)
        if is_code:
            return lookahead.code_end
        code.cancel_span()
        return at

    def _write(self, text: str) -> None:
        self._display.write(text)
        if self._unclosed_code is None:
            return
        if self._display.code.closed_count != self._closed_count_before:
            self._unclosed_code = None
        elif self._unclosed_code_chars < MAX_TAG_CHARS:
            self._unclosed_code.append(text)
            self._unclosed_code_chars += len(text)

    def _write_code(self, text: str) -> None:
        if self._unclosed_code is None and self._display.code.mode in MULTILINE_MODES:
            self._watch_unclosed_code("")
        self._write(text)

    def _watch_unclosed_code(self, shown: str) -> None:
        self._unclosed_code = [shown]
        self._unclosed_code_chars = len(shown)
        self._closed_count_before = self._display.code.closed_count

    def _complete_partial_opener(self, chunk: str) -> None:
        beginning = self._partial_opener
        joined = beginning + chunk[: self._openers.longest + 1]
        match = self._openers.find(joined)
        is_opener = match is not None and match.start() == 0
        self._partial_opener = joined if self._openers.find_partial(joined, 0) == 0 else ""
        if is_opener and self._unclosed_code is None and self._display.code.mode in MULTILINE_MODES:
            self._watch_unclosed_code(beginning)

    def _reject_unclosed_code(self) -> None:
        if self._unclosed_code is None:
            return
        code = self._display.code
        code.feed("\n")  # the last line may be the end of the fence
        if code.closed_count == self._closed_count_before:
            raw = "".join(self._unclosed_code)[:MAX_TAG_CHARS]
            self._rejects.append(make_text_reject("unclosed_code", raw))

    def _open_element(self, opener: str, at: int) -> int:
        self._display.mark_removed()
        if opener == TAG_START:
            return self._open_tag(at)
        self._state = ScanState.MARKER
        self._marker = OpenMarker(opener, self._openers.markers[opener])
        return at

    def _scan_marker(self, at: int) -> int:
        marker = self._marker
        assert marker is not None  # in this state
        end = marker.feed(self._text, at)
        if marker.has_ended:
            self._close_marker(marker)
        elif marker.reject is not None:
            self._rejects.append(marker.reject)
            marker.reject = None
        return end

    def _close_marker(self, marker: OpenMarker) -> None:
        self._state = ScanState.TEXT
        self._marker = None
        if marker.event is not None:
            self._events.append(marker.event)
        if marker.reject is not None:
            self._rejects.append(marker.reject)
        self._write(marker.text_after)

    def _open_tag(self, at: int) -> int:
        self._state = ScanState.TAG
        self._tag = TagScanner()
        self._tag_parts = [TAG_START]
        self._pending_chars = len(TAG_START)
        if len(self._text) - at <= MAX_DEFERRED_CHARS and self._defer(self._text[at:]):
            return NEED_MORE
        return at

    def _close_tag(self) -> None:
        self._state = ScanState.TEXT
        self._tag_parts = []

    def _hold_tag(self, at: int) -> int:
        rest = self._text[at:]
        self._unscanned = [rest]
        self._pending_chars = len(rest)
        if self._state is not ScanState.SKIPPING:
            self._pending_chars += self._tag.scanned_chars
        return NEED_MORE

    def _scan_tag(self, at: int) -> int:
        tag = self._tag
        end = tag.feed(self._text, at)
        self._tag_parts.append(self._text[at:end])
        if tag.scanned_chars > MAX_TAG_CHARS:
            self._reject_tag("too_long", "".join(self._tag_parts)[:MAX_TAG_CHARS])
            self._state = ScanState.SKIPPING
            self._tag_parts = []
            return self._end_skipping(end)
        if not tag.end_token:
            return self._hold_tag(end)

        raw = "".join(self._tag_parts)
        if tag.end_token == ">" and end > self._no_closer_before:
            self._state = ScanState.PAIRED
            self._tag_parts = [raw]
            self._pending_chars = tag.scanned_chars
            return end
        self._finish_tag(raw)
        self._close_tag()
        return end

    def _scan_skipping(self, at: int) -> int:
        return self._end_skipping(self._tag.feed(self._text, at))

    def _end_skipping(self, end: int) -> int:
        if not self._tag.end_token:
            return self._hold_tag(end)
        self._close_tag()
        return end

    def _scan_paired(self, at: int) -> int:
        text = self._text
        stop = at + MAX_TAG_CHARS - self._tag.scanned_chars
        closer = text.find(END_TAG, at, stop)
        if closer >= 0:
            end = closer + len(END_TAG)
            self._reject_tag("paired", "".join(self._tag_parts) + text[at:end])
            self._close_tag()
            return end
        if len(text) > stop:
            return self._reject_unpaired(at)

        # The closing tag may be cut by the end of the text.
        keep = max(at, len(text) - len(END_TAG) + 1)
        self._tag_parts.append(text[at:keep])
        self._tag.scanned_chars += keep - at
        return self._hold_tag(keep)

    def _reject_unpaired(self, at: int) -> int:
        """Refuse an opener without a closing tag. Return the index of the text after it, to scan it again."""
        opener, *content = self._tag_parts
        self._reject_tag("paired", opener)
        if content:
            self._text = "".join(content) + self._text[at:]
            at = 0
        self._no_closer_before = at + MAX_TAG_CHARS - len(opener)
        self._close_tag()
        return at

    def _finish_tag(self, raw: str) -> None:
        event = self._parse_event(raw)
        if isinstance(event, TagEvent):
            self._events.append(event)
        else:
            self._reject_tag(event, raw)

    def _parse_event(self, raw: str) -> TagEvent | str:
        end_token = self._tag.end_token
        if end_token == ">":
            return "paired"
        if end_token != "/>":
            return "unclosed"
        attributes, is_whole = self._tag.parse_attributes(raw)
        if not is_whole:
            return "malformed"

        name = attributes.get("type", "")
        if not name:
            return "missing_type"
        if not _TYPE_NAME.fullmatch(name):
            return "bad_type"
        if self._nonce is not None and attributes.get("nonce") != self._nonce:
            return "wrong_nonce" if "nonce" in attributes else "missing_nonce"

        parsed = _parse_json_object(attributes.get("data", "{}"))
        if parsed is None:
            return "bad_json"
        data, body = parsed
        if self._vocabulary is None:
            return TagEvent(name, data)
        event_type = self._vocabulary.find_tag(name)
        if event_type is None:
            return "unknown_type"
        return self._decode_payload(event_type, data, body)

    def _decode_payload(self, event_type: EventType, data: dict[str, Any], body: bytes) -> TagEvent | str:
        try:
            payload = event_type.decode_payload(body)
        except InvalidEvent:
            return "bad_payload"
        if event_type.payload_class.LEGACY:
            return "legacy_type"
        if not event_type.allows_origin(payload, self._origin):
            return "wrong_origin"
        return TagEvent(event_type.tag, data, payload)

    def _reject_tag(self, reason: str, raw: str) -> None:
        attributes, _ = self._tag.parse_attributes(raw)
        name = attributes.get("type", "")
        self._rejects.append(make_text_reject(reason, raw, name if _TYPE_NAME.fullmatch(name) else None))


SCANNERS: dict[ScanState, Callable[[AgentStreamParser, int], int]] = {
    ScanState.TEXT: AgentStreamParser._scan_text,
    ScanState.TAG: AgentStreamParser._scan_tag,
    ScanState.PAIRED: AgentStreamParser._scan_paired,
    ScanState.SKIPPING: AgentStreamParser._scan_skipping,
    ScanState.MARKER: AgentStreamParser._scan_marker,
}


def strip_event_tags(
    text: str, vocabulary: Vocabulary | None = None, origin: Origin = "model", nonce: str | None = None
) -> StrippedText:
    parser = AgentStreamParser(vocabulary, origin, nonce)
    fed = parser.feed(text)
    end = parser.flush()
    return StrippedText(
        fed.display_text + end.display_text, fed.events + end.events, fed.rejects + end.rejects
    )
