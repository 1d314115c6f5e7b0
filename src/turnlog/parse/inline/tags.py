"""The scanner of model text: one message in; text to show, events and rejects out (docs/protocol.md 5).

It finds inline tags, and with other `Openers` the markers of `marker_span`, in document order.

    <agent-event type="NAME" data='{"JSON": "object"}' nonce="..." />       in any order; data may be missing

Invariant: any cutting of the input gives the same result, and after each feed everything that can no longer
be part of a tag, or of white space before one, has been returned. A tag becomes an event or a `ParseReject`,
never text; which white space it leaves, `prose` says. Text, never tags: fenced code, in lists too, a code
span that is closed on its line, quoted lines (`>`), HTML comments; for a fence or a comment that is never
closed the first tag in it leaves a `ParseReject`. Behind a backtick a tag waits for the end of its line,
which decides whether it is in a span. Limit: 64 KiB. A longer tag is refused and skipped to its own end, or
to what no JSON holds: a line break in quotes, a `<` outside them. `<agent-event ...>` is refused with all up
to `</agent-event>`; where none comes within the limit only it is, and the rest is prose. Refuses to mend JSON
beyond the seed's three dialects.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import EventType, Origin, ParseReject, Vocabulary
from turnlog.events.strict_json import decode_strict_json, may_overflow_double
from turnlog.parse.inline.display_text import DisplayText
from turnlog.parse.inline.markdown_code import MULTILINE_MODES, LineLookahead, may_open_block
from turnlog.parse.inline.marker_scanner import OpenMarker
from turnlog.parse.inline.parsed_text import ParsedText, TagEvent
from turnlog.parse.inline.tag_scanner import MAX_TAG_CHARS, TAG_START, WHITESPACE, TagScanner
from turnlog.parse.rejects import make_text_reject

MAX_DEFERRED_CHARS = 256  # a tag that begins this near to the end of a chunk can wait for the next one
END_TAG = "</agent-event>"
_EDGE = WHITESPACE + "<\\"  # after such a character a chunk is not finished
_WHOLE_SPANS = re.compile(r"(?:[^`\\]*+`[^`\n]++`(?!`))++[^`\\]++").fullmatch  # ordinary text but for code
_TYPE_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class Openers:
    """The strings that begin an element: the opener of tags, and markers."""

    def __init__(self, *openers: str) -> None:
        self.has_markers = any(opener != TAG_START for opener in openers)
        self._openers = openers
        self.longest = max(map(len, openers))
        patterns = [_TAG_PATTERN if opener == TAG_START else re.escape(opener) for opener in openers]
        self.find = re.compile("|".join(patterns)).search

    def find_partial(self, text: str, at: int) -> int:
        """Return where an opener may begin that goes on after the text; -1 if none can."""
        start = max(at, len(text) - self.longest)
        place = max(text.rfind("<", start), text.rfind("[", start))
        half = text[place:] if place >= 0 else ""
        return place if half and any(opener.startswith(half) for opener in self._openers) else -1


_TAG_PATTERN = rf"{TAG_START}(?=[{WHITESPACE}/>])"
TAG_OPENERS = Openers(TAG_START)


class StrippedText(msgspec.Struct):
    """A whole text without its tags, and what was in them."""

    display: str
    events: list[TagEvent]
    rejects: list[ParseReject]


def _parse_json_object(text: str) -> tuple[dict[str, Any], bytes] | None:
    """A JSON object and its bytes, in the first of the three dialects that reads it."""
    for dialect in _QUOTE_VARIANTS:
        try:
            body = dialect(text).encode()
            if body.count(b"{") + body.count(b"[") == 1:  # flat: the gate's questions are easily answered
                data = _FLAT.decode(body)
                if body.count(b":") == len(data) and not may_overflow_double(body):
                    return data, body
            return decode_strict_json(body, _JSON_OBJECT), body
        except (BadInput, msgspec.DecodeError, ValueError):
            continue
    return None


_JSON_OBJECT = dict[str, Any]
_FLAT = msgspec.json.Decoder(_JSON_OBJECT)
_BACKSLASHES = re.compile(r'(?<!\\)\\++(?=")')
_SMART_QUOTES = str.maketrans("‘’“”", "''\"\"")
_QUOTE_VARIANTS: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: _BACKSLASHES.sub(lambda run: run[0][: len(run[0]) // 2], text),
    lambda text: text.translate(_SMART_QUOTES),
)


class AgentStreamParser:
    """Takes the tags out of model text while it streams. After `flush` it is ready for the next message."""

    def __init__(
        self,
        vocabulary: Vocabulary | None = None,
        origin: Origin = "model",
        nonce: str | None = None,
        openers: Openers = TAG_OPENERS,
    ) -> None:
        self._vocabulary, self._origin, self._nonce = vocabulary, origin, nonce
        self._openers = openers
        self._reset()

    def _reset(self) -> None:
        self._display = DisplayText()
        self._can_pass_through = False  # whether ordinary text may pass at once
        self._tag_scanner: TagScanner | None = None  # the open tag
        self._open_marker: OpenMarker | None = None  # the open marker
        self._lookahead: LineLookahead | None = None  # while it is not decided whether what is held is code
        self._is_final = False  # no more text comes
        self._unclosed_code: list[str] | None = None  # from the first element in an open fence or comment on
        self._unclosed_code_chars = self._closed_count_before = (
            0  # its characters; how many fences had ended before it
        )
        self._partial_opener = ""  # that was shown in a fence or a comment, at the end of a chunk
        self._tag_parts: list[str] = []  # its text; nothing once it is too long
        self._unscanned: list[
            str
        ] = []  # what is not looked at yet: half an opener, text that cannot end a tag
        self._pending_chars = 0  # characters of both
        self._start_feed("")

    def _start_feed(self, text: str) -> None:
        self._text = text  # what this feed works on
        self._no_closer_before = 0  # up to here it is known that no closing tag follows
        self._events: list[TagEvent] = []
        self._rejects: list[ParseReject] = []

    def feed(self, chunk: str) -> ParsedText:
        """Take the next piece of text; the answer is everything that is decided by now."""
        if (
            self._can_pass_through
            and ("`" not in chunk or _WHOLE_SPANS(chunk))
            and ("<" not in chunk or ("<a" not in chunk and "<!" not in chunk))
            and ("\n" not in chunk or not may_open_block(chunk))
            and ("[" not in chunk or not self._openers.has_markers)
            and chunk
        ):
            prose = self._display
            if chunk[-1] not in _EDGE:
                if prose.held_space:
                    chunk = prose.held_space + chunk
                    prose.held_space = ""
                return ParsedText(chunk, [], [])
            if chunk[-1] == " " and chunk[-2:-1] not in _EDGE:
                white, prose.held_space = prose.held_space, " "
                return ParsedText(white + chunk[:-1], [], [])
        if (self._tag_scanner and self._try_defer(chunk)) or (
            self._lookahead and self._try_defer_undecided(self._lookahead, chunk)
        ):
            return ParsedText("", [], [])
        self._start_feed(self._take_unscanned() + chunk)
        if self._partial_opener:
            self._complete_partial_opener(chunk)
        self._scan(0)
        prose, code = self._display, self._display.code
        busy = self._unscanned or code.pending or code.mode != "prose"
        self._can_pass_through = prose.has_output and prose.removed_gap is None and not busy
        return ParsedText(prose.drain(), self._events, self._rejects)

    def flush(self) -> ParsedText:
        """The message is over: decide what is left."""
        self._is_final = True
        self._start_feed(self._take_unscanned())
        if self._lookahead:
            self._scan(0)
            self._text = self._take_unscanned()
        if self._tag_scanner and self._tag_scanner.end_token:
            self._scan(self._reject_unpaired(self._tag_scanner, 0))
            self._text = self._take_unscanned()
        if self._open_marker:
            self._open_marker.flush()
            self._close_marker(self._open_marker)
        if self._tag_scanner is None:
            self._write(self._text)
            self._reject_unclosed_code()
            self._display.end()
        elif self._tag_parts:
            self._tag_scanner.feed(self._text, 0)
            self._reject("unclosed", self._tag_scanner, "".join(self._tag_parts) + self._text)
        parsed = ParsedText(self._display.drain(), self._events, self._rejects)
        self._reset()
        return parsed

    def _take_unscanned(self) -> str:
        text, self._unscanned = "".join(self._unscanned), []
        return text

    def _try_defer(self, text: str) -> bool:
        """Whether this text can only go on with the open tag; it is looked at with the text that ends it."""
        size = self._pending_chars + len(text)
        if size > MAX_TAG_CHARS or ">" in text or "<" in text or ("\n" in text and not self._tag_parts):
            return False
        self._pending_chars = size
        self._unscanned.append(text)
        return True

    def _try_defer_undecided(self, ahead: LineLookahead, chunk: str) -> bool:
        """Whether it is still open if what is held is code; a line over the limit is not waited for."""
        self._pending_chars += len(chunk)
        if self._pending_chars > MAX_TAG_CHARS or ahead.feed(chunk, 0, len(chunk)) is not None:
            return False
        self._unscanned.append(chunk)
        return True

    def _scan(self, at: int) -> None:
        self._lookahead = None
        while 0 <= at < len(self._text):
            if self._open_marker:
                at = self._scan_marker(self._open_marker, at)
            elif walk := self._tag_scanner:
                at = self._scan_paired(walk, at) if walk.end_token else self._scan_tag(walk, at)
            else:
                at = self._scan_text(at)
        self._text = ""

    def _scan_text(self, at: int) -> int:
        """Prose, up to the next tag or marker."""
        text = self._text
        while match := self._openers.find(text, at):
            self._write(text[at : match.start()])
            at = match.start()
            end = self._find_code_end(at, match.end())
            if end < 0:
                return self._hold_undecided(at)
            if end == at:
                return self._open_element(match[0], match.end())
            self._write_code(text[at:end])
            at = end
        cut = self._openers.find_partial(text, at)
        if cut < 0:
            self._write(text[at:])
            return -1
        self._write(text[at:cut])
        if self._display.code.next_is_code() and not self._display.code.open_runs:
            self._partial_opener = text[cut:]
            self._write(text[cut:])
        else:
            self._unscanned = [text[cut:]]
        return -1

    def _find_code_end(self, at: int, opener_end: int) -> int:
        """Return where the code ends that an opener at `at` is in; `at` if it is in none, -1 if unknown."""
        code = self._display.code
        if not code.next_is_code():
            return at
        if not code.open_runs:
            return opener_end  # fences, comments and quotes: what follows the opener is looked at again
        ahead, size = LineLookahead(code), len(self._text)
        is_code = ahead.feed(self._text, at, min(size, at + MAX_TAG_CHARS))
        if is_code is None and size - at <= MAX_TAG_CHARS:
            if not self._is_final:
                self._lookahead = ahead
                return -1
            is_code = ahead.flush(size)
        if is_code:
            return ahead.code_end
        code.cancel_span()
        return at

    def _hold_undecided(self, at: int) -> int:
        self._unscanned = [self._text[at:]]
        self._pending_chars = len(self._text) - at
        return -1

    def _write(self, text: str) -> None:
        """Show text; what follows an element in an open fence or comment is counted, too."""
        self._display.write(text)
        if self._unclosed_code is None:
            return
        code = self._display.code
        if code.closed_count != self._closed_count_before:
            self._unclosed_code = None
        elif self._unclosed_code_chars < MAX_TAG_CHARS:
            self._unclosed_code.append(text)
            self._unclosed_code_chars += len(text)

    def _write_code(self, text: str) -> None:
        """Show an element that is code. If the fence or comment around it never ends, it is refused."""
        code = self._display.code
        if self._unclosed_code is None and code.mode in MULTILINE_MODES:
            self._watch_unclosed_code("")
        self._write(text)

    def _watch_unclosed_code(self, shown: str) -> None:
        self._unclosed_code, self._unclosed_code_chars = [shown], len(shown)
        self._closed_count_before = self._display.code.closed_count

    def _complete_partial_opener(self, chunk: str) -> None:
        """See whether a half opener that was shown has become one."""
        half = self._partial_opener
        joined = half + chunk[: self._openers.longest + 1]
        match = self._openers.find(joined)
        is_opener = match is not None and match.start() == 0
        self._partial_opener = joined if self._openers.find_partial(joined, 0) == 0 else ""
        if is_opener and self._unclosed_code is None and self._display.code.mode in MULTILINE_MODES:
            self._watch_unclosed_code(half)

    def _reject_unclosed_code(self) -> None:
        """Leave a reject if an element was shown because of a fence or a comment that nothing ends."""
        if self._unclosed_code is None:
            return
        code = self._display.code
        code.feed("\n")  # the last line may be what ends it
        if code.closed_count == self._closed_count_before:
            raw = "".join(self._unclosed_code)[:MAX_TAG_CHARS]
            self._rejects.append(make_text_reject("unclosed_code", raw))

    def _open_element(self, opener: str, at: int) -> int:
        if opener == TAG_START:
            return self._open_tag(at)
        self._display.mark_removed()
        self._open_marker = OpenMarker(opener)
        return at

    def _scan_marker(self, span: OpenMarker, at: int) -> int:
        """The open marker, up to its end."""
        end = span.feed(self._text, at)
        if span.has_ended:
            self._close_marker(span)
        elif span.reject:
            self._rejects.append(span.reject)
            span.reject = None
        return end

    def _close_marker(self, span: OpenMarker) -> None:
        self._open_marker = None
        if span.event:
            self._events.append(span.event)
        if span.reject:
            self._rejects.append(span.reject)
        self._write(span.text_after)

    def _open_tag(self, at: int) -> int:
        self._display.mark_removed()
        self._tag_scanner, self._tag_parts, self._pending_chars = TagScanner(), [TAG_START], len(TAG_START)
        return -1 if len(self._text) - at <= MAX_DEFERRED_CHARS and self._try_defer(self._text[at:]) else at

    def _close_tag(self, at: int) -> int:
        self._tag_scanner, self._tag_parts = None, []
        return at

    def _hold_tag(self, walk: TagScanner, at: int) -> int:
        self._unscanned = [self._text[at:]]
        self._pending_chars = (walk.scanned_chars if self._tag_parts else 0) + len(self._text) - at
        return -1

    def _scan_tag(self, walk: TagScanner, at: int) -> int:
        end = walk.feed(self._text, at)
        if self._tag_parts:
            self._tag_parts.append(self._text[at:end])
            if walk.scanned_chars > MAX_TAG_CHARS:
                self._reject("too_long", walk, "".join(self._tag_parts)[:MAX_TAG_CHARS])
                self._tag_parts = []
        if not walk.end_token:
            return self._hold_tag(walk, end)
        if self._tag_parts and walk.end_token == ">" and end > self._no_closer_before:
            self._tag_parts, self._pending_chars = ["".join(self._tag_parts)], walk.scanned_chars
            return end
        if self._tag_parts:
            self._finish_tag(walk, "".join(self._tag_parts))
        return self._close_tag(end)

    def _scan_paired(self, walk: TagScanner, at: int) -> int:
        text, stop = self._text, at + MAX_TAG_CHARS - walk.scanned_chars
        found = text.find(END_TAG, at, stop)
        if found >= 0:
            self._reject("paired", walk, "".join(self._tag_parts) + text[at : found + len(END_TAG)])
            return self._close_tag(found + len(END_TAG))
        if len(text) > stop:
            return self._reject_unpaired(walk, at)
        keep = max(at, len(text) - len(END_TAG) + 1)
        self._tag_parts.append(text[at:keep])
        walk.scanned_chars += keep - at
        return self._hold_tag(walk, keep)

    def _reject_unpaired(self, walk: TagScanner, at: int) -> int:
        """No closing tag came: only the opener is refused, and what followed it is prose after all."""
        opener, *content = self._tag_parts
        self._reject("paired", walk, opener)
        if content:
            self._text, at = "".join(content) + self._text[at:], 0
        self._no_closer_before = at + MAX_TAG_CHARS - len(opener)
        return self._close_tag(at)

    def _finish_tag(self, walk: TagScanner, raw: str) -> None:
        event = self._parse_event(walk, raw)
        if isinstance(event, str):
            self._reject(event, walk, raw)
        else:
            self._events.append(event)

    def _parse_event(self, walk: TagScanner, raw: str) -> TagEvent | str:
        """The event of a tag, or the reason why there is none."""
        attributes, whole = walk.parse_attributes(raw)
        if walk.end_token != "/>" or not whole:
            return {"/>": "malformed", ">": "paired"}.get(walk.end_token, "unclosed")
        name = attributes.get("type", "")
        if not _TYPE_NAME.fullmatch(name):
            return "bad_type" if name else "missing_type"
        if self._nonce is not None and attributes.get("nonce") != self._nonce:
            return "wrong_nonce" if "nonce" in attributes else "missing_nonce"
        read = _parse_json_object(attributes.get("data", "{}"))
        if read is None:
            return "bad_json"
        if self._vocabulary is None:
            return TagEvent(name, read[0])
        kind = self._vocabulary.find_tag(name)
        return self._decode_payload(kind, *read) if kind else "unknown_type"

    def _decode_payload(self, kind: EventType, data: dict[str, Any], body: bytes) -> TagEvent | str:
        try:
            payload = kind.decode_payload(body)
        except InvalidEvent:
            return "bad_payload"
        if kind.payload_class.LEGACY:
            return "legacy_type"
        return (
            TagEvent(kind.tag, data, payload) if kind.allows_origin(payload, self._origin) else "wrong_origin"
        )

    def _reject(self, reason: str, walk: TagScanner, raw: str) -> None:
        name = walk.parse_attributes(raw)[0].get("type", "")
        readable = name if _TYPE_NAME.fullmatch(name) else None
        self._rejects.append(make_text_reject(reason, raw, readable))


def strip_event_tags(
    text: str, vocabulary: Vocabulary | None = None, origin: Origin = "model", nonce: str | None = None
) -> StrippedText:
    """A whole text at once: feed and flush."""
    parser = AgentStreamParser(vocabulary, origin, nonce)
    fed, end = parser.feed(text), parser.flush()
    return StrippedText(
        fed.display_text + end.display_text, fed.events + end.events, fed.rejects + end.rejects
    )
