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

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import Kind, Origin, ParseReject, Vocabulary
from turnlog.events.strict_json import decode, has_long_number
from turnlog.parse.inline.display_text import Prose
from turnlog.parse.inline.markdown_code import MARKED, SEALED, LineAhead
from turnlog.parse.inline.marker_scanner import Span
from turnlog.parse.inline.parsed_text import Parsed, TagEvent
from turnlog.parse.inline.tag_scanner import LIMIT_CHARS, OPENER, WHITE, Walk

LATE_CHARS = 256  # a tag that begins this near to the end of a chunk can wait for the next one
CLOSER = "</agent-event>"
_EDGE = WHITE + "<\\"  # after such a character a chunk is not finished
_WHOLE_SPANS = re.compile(r"(?:[^`\\]*+`[^`\n]++`(?!`))++[^`\\]++").fullmatch  # ordinary text but for code
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class Openers:
    """The strings that begin an element: the opener of tags, and markers."""

    def __init__(self, *openers: str) -> None:
        self.has_markers = any(opener != OPENER for opener in openers)
        self._openers = openers
        self.longest = max(map(len, openers))
        patterns = [_TAG if opener == OPENER else re.escape(opener) for opener in openers]
        self.find = re.compile("|".join(patterns)).search

    def cut(self, text: str, at: int) -> int:
        """Return where an opener may begin that goes on after the text; -1 if none can."""
        start = max(at, len(text) - self.longest)
        place = max(text.rfind("<", start), text.rfind("[", start))
        half = text[place:] if place >= 0 else ""
        return place if half and any(opener.startswith(half) for opener in self._openers) else -1


_TAG = rf"{OPENER}(?=[{WHITE}/>])"
TAG_OPENERS = Openers(OPENER)


class Stripped(msgspec.Struct):
    """A whole text without its tags, and what was in them."""

    display: str
    events: list[TagEvent]
    rejects: list[ParseReject]


def _object(text: str) -> tuple[dict[str, Any], bytes] | None:
    """A JSON object and its bytes, in the first of the three dialects that reads it."""
    for dialect in _DIALECTS:
        try:
            body = dialect(text).encode()
            if body.count(b"{") + body.count(b"[") == 1:  # flat: the gate's questions are easily answered
                data = _FLAT.decode(body)
                if body.count(b":") == len(data) and not has_long_number(body):
                    return data, body
            return decode(body, _OBJECT), body
        except (BadInput, msgspec.DecodeError, ValueError):
            continue
    return None


_OBJECT = dict[str, Any]
_FLAT = msgspec.json.Decoder(_OBJECT)
_BACKSLASHES = re.compile(r'(?<!\\)\\++(?=")')
_SMART_QUOTES = str.maketrans("‘’“”", "''\"\"")
_DIALECTS: tuple[Callable[[str], str], ...] = (
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
        self._prose = Prose()
        self._plain = False  # whether ordinary text may pass at once
        self._walk: Walk | None = None  # the open tag
        self._span: Span | None = None  # the open marker
        self._ahead: LineAhead | None = None  # while it is not decided whether what is held is code
        self._final = False  # no more text comes
        self._sealed: list[str] | None = None  # from the first element in an open fence or comment on
        self._sealed_size = self._sealed_in = 0  # its characters; how many fences had ended before it
        self._half_opener = ""  # that was shown in a fence or a comment, at the end of a chunk
        self._parts: list[str] = []  # its text; nothing once it is too long
        self._held: list[str] = []  # what is not looked at yet: half an opener, text that cannot end a tag
        self._size = 0  # characters of both
        self._begin("")

    def _begin(self, text: str) -> None:
        self._text = text  # what this feed works on
        self._childless = 0  # up to here it is known that no closing tag follows
        self._events: list[TagEvent] = []
        self._rejects: list[ParseReject] = []

    def feed(self, chunk: str) -> Parsed:
        """Take the next piece of text; the answer is everything that is decided by now."""
        if (
            self._plain
            and ("`" not in chunk or _WHOLE_SPANS(chunk))
            and ("<" not in chunk or ("<a" not in chunk and "<!" not in chunk))
            and ("\n" not in chunk or not MARKED(chunk))
            and ("[" not in chunk or not self._openers.has_markers)
            and chunk
        ):
            prose = self._prose
            if chunk[-1] not in _EDGE:
                if prose.white:
                    chunk = prose.white + chunk
                    prose.white = ""
                return Parsed(chunk, [], [])
            if chunk[-1] == " " and chunk[-2:-1] not in _EDGE:
                white, prose.white = prose.white, " "
                return Parsed(white + chunk[:-1], [], [])
        if (self._walk and self._waits(chunk)) or (self._ahead and self._undecided(self._ahead, chunk)):
            return Parsed("", [], [])
        self._begin(self._take() + chunk)
        if self._half_opener:
            self._complete_half(chunk)
        self._run(0)
        prose, code = self._prose, self._prose.code
        busy = self._held or code.pending or code.mode != "prose"
        self._plain = prose.shown and prose.gap is None and not busy
        return Parsed(prose.said(), self._events, self._rejects)

    def flush(self) -> Parsed:
        """The message is over: decide what is left."""
        self._final = True
        self._begin(self._take())
        if self._ahead:
            self._run(0)
            self._text = self._take()
        if self._walk and self._walk.end:
            self._run(self._unpair(self._walk, 0))
            self._text = self._take()
        if self._span:
            self._span.flush()
            self._close_span(self._span)
        if self._walk is None:
            self._show(self._text)
            self._refuse_sealed()
            self._prose.end()
        elif self._parts:
            self._walk.feed(self._text, 0)
            self._refuse("unclosed", self._walk, "".join(self._parts) + self._text)
        parsed = Parsed(self._prose.said(), self._events, self._rejects)
        self._reset()
        return parsed

    def _take(self) -> str:
        text, self._held = "".join(self._held), []
        return text

    def _waits(self, text: str) -> bool:
        """Whether this text can only go on with the open tag; it is looked at with the text that ends it."""
        size = self._size + len(text)
        if size > LIMIT_CHARS or ">" in text or "<" in text or ("\n" in text and not self._parts):
            return False
        self._size = size
        self._held.append(text)
        return True

    def _undecided(self, ahead: LineAhead, chunk: str) -> bool:
        """Whether it is still open if what is held is code; a line over the limit is not waited for."""
        self._size += len(chunk)
        if self._size > LIMIT_CHARS or ahead.feed(chunk, 0, len(chunk)) is not None:
            return False
        self._held.append(chunk)
        return True

    def _run(self, at: int) -> None:
        self._ahead = None
        while 0 <= at < len(self._text):
            if self._span:
                at = self._marker(self._span, at)
            elif walk := self._walk:
                at = self._pair(walk, at) if walk.end else self._tag(walk, at)
            else:
                at = self._outside(at)
        self._text = ""

    def _outside(self, at: int) -> int:
        """Prose, up to the next tag or marker."""
        text = self._text
        while match := self._openers.find(text, at):
            self._show(text[at : match.start()])
            at = match.start()
            end = self._code_end(at, match.end())
            if end < 0:
                return self._hold_undecided(at)
            if end == at:
                return self._open_element(match[0], match.end())
            self._show_code(text[at:end])
            at = end
        cut = self._openers.cut(text, at)
        if cut < 0:
            self._show(text[at:])
            return -1
        self._show(text[at:cut])
        if self._prose.code.inside() and not self._prose.code.runs:
            self._half_opener = text[cut:]
            self._show(text[cut:])
        else:
            self._held = [text[cut:]]
        return -1

    def _code_end(self, at: int, opener_end: int) -> int:
        """Return where the code ends that an opener at `at` is in; `at` if it is in none, -1 if unknown."""
        code = self._prose.code
        if not code.inside():
            return at
        if not code.runs:
            return opener_end  # fences, comments and quotes: what follows the opener is looked at again
        ahead, size = LineAhead(code), len(self._text)
        is_code = ahead.feed(self._text, at, min(size, at + LIMIT_CHARS))
        if is_code is None and size - at <= LIMIT_CHARS:
            if not self._final:
                self._ahead = ahead
                return -1
            is_code = ahead.flush(size)
        if is_code:
            return ahead.end
        code.cancel_span()
        return at

    def _hold_undecided(self, at: int) -> int:
        self._held = [self._text[at:]]
        self._size = len(self._text) - at
        return -1

    def _show(self, text: str) -> None:
        """Show text; what follows an element in an open fence or comment is counted, too."""
        self._prose.show(text)
        if self._sealed is None:
            return
        code = self._prose.code
        if code.ended != self._sealed_in:
            self._sealed = None
        elif self._sealed_size < LIMIT_CHARS:
            self._sealed.append(text)
            self._sealed_size += len(text)

    def _show_code(self, text: str) -> None:
        """Show an element that is code. If the fence or comment around it never ends, it is refused."""
        code = self._prose.code
        if self._sealed is None and code.mode in SEALED:
            self._seal("")
        self._show(text)

    def _seal(self, shown: str) -> None:
        self._sealed, self._sealed_size = [shown], len(shown)
        self._sealed_in = self._prose.code.ended

    def _complete_half(self, chunk: str) -> None:
        """See whether a half opener that was shown has become one."""
        half = self._half_opener
        joined = half + chunk[: self._openers.longest + 1]
        match = self._openers.find(joined)
        is_opener = match is not None and match.start() == 0
        self._half_opener = joined if self._openers.cut(joined, 0) == 0 else ""
        if is_opener and self._sealed is None and self._prose.code.mode in SEALED:
            self._seal(half)

    def _refuse_sealed(self) -> None:
        """Leave a reject if an element was shown because of a fence or a comment that nothing ends."""
        if self._sealed is None:
            return
        code = self._prose.code
        code.feed("\n")  # the last line may be what ends it
        if code.ended == self._sealed_in:
            raw = "".join(self._sealed)[:LIMIT_CHARS]
            self._rejects.append(rejected("unclosed_code", raw))

    def _open_element(self, opener: str, at: int) -> int:
        if opener == OPENER:
            return self._open(at)
        self._prose.take_out()
        self._span = Span(opener)
        return at

    def _marker(self, span: Span, at: int) -> int:
        """The open marker, up to its end."""
        end = span.feed(self._text, at)
        if span.over:
            self._close_span(span)
        elif span.reject:
            self._rejects.append(span.reject)
            span.reject = None
        return end

    def _close_span(self, span: Span) -> None:
        self._span = None
        if span.event:
            self._events.append(span.event)
        if span.reject:
            self._rejects.append(span.reject)
        self._show(span.text_after)

    def _open(self, at: int) -> int:
        self._prose.take_out()
        self._walk, self._parts, self._size = Walk(), [OPENER], len(OPENER)
        return -1 if len(self._text) - at <= LATE_CHARS and self._waits(self._text[at:]) else at

    def _close(self, at: int) -> int:
        self._walk, self._parts = None, []
        return at

    def _hold(self, walk: Walk, at: int) -> int:
        self._held = [self._text[at:]]
        self._size = (walk.size if self._parts else 0) + len(self._text) - at
        return -1

    def _tag(self, walk: Walk, at: int) -> int:
        end = walk.feed(self._text, at)
        if self._parts:
            self._parts.append(self._text[at:end])
            if walk.size > LIMIT_CHARS:
                self._refuse("too_long", walk, "".join(self._parts)[:LIMIT_CHARS])
                self._parts = []
        if not walk.end:
            return self._hold(walk, end)
        if self._parts and walk.end == ">" and end > self._childless:
            self._parts, self._size = ["".join(self._parts)], walk.size
            return end
        if self._parts:
            self._judge(walk, "".join(self._parts))
        return self._close(end)

    def _pair(self, walk: Walk, at: int) -> int:
        text, stop = self._text, at + LIMIT_CHARS - walk.size
        found = text.find(CLOSER, at, stop)
        if found >= 0:
            self._refuse("paired", walk, "".join(self._parts) + text[at : found + len(CLOSER)])
            return self._close(found + len(CLOSER))
        if len(text) > stop:
            return self._unpair(walk, at)
        keep = max(at, len(text) - len(CLOSER) + 1)
        self._parts.append(text[at:keep])
        walk.size += keep - at
        return self._hold(walk, keep)

    def _unpair(self, walk: Walk, at: int) -> int:
        """No closing tag came: only the opener is refused, and what followed it is prose after all."""
        opener, *content = self._parts
        self._refuse("paired", walk, opener)
        if content:
            self._text, at = "".join(content) + self._text[at:], 0
        self._childless = at + LIMIT_CHARS - len(opener)
        return self._close(at)

    def _judge(self, walk: Walk, raw: str) -> None:
        event = self._event(walk, raw)
        if isinstance(event, str):
            self._refuse(event, walk, raw)
        else:
            self._events.append(event)

    def _event(self, walk: Walk, raw: str) -> TagEvent | str:
        """The event of a tag, or the reason why there is none."""
        attributes, whole = walk.attributes(raw)
        if walk.end != "/>" or not whole:
            return {"/>": "malformed", ">": "paired"}.get(walk.end, "unclosed")
        name = attributes.get("type", "")
        if not _NAME.fullmatch(name):
            return "bad_type" if name else "missing_type"
        if self._nonce is not None and attributes.get("nonce") != self._nonce:
            return "wrong_nonce" if "nonce" in attributes else "missing_nonce"
        read = _object(attributes.get("data", "{}"))
        if read is None:
            return "bad_json"
        if self._vocabulary is None:
            return TagEvent(name, read[0])
        kind = self._vocabulary.tag(name)
        return self._typed(kind, *read) if kind else "unknown_type"

    def _typed(self, kind: Kind, data: dict[str, Any], body: bytes) -> TagEvent | str:
        try:
            payload = kind.read(body)
        except InvalidEvent:
            return "bad_payload"
        if kind.payload.LEGACY:
            return "legacy_type"
        return TagEvent(kind.tag, data, payload) if kind.admits(payload, self._origin) else "wrong_origin"

    def _refuse(self, reason: str, walk: Walk, raw: str) -> None:
        name = walk.attributes(raw)[0].get("type", "")
        readable = name if _NAME.fullmatch(name) else None
        self._rejects.append(rejected(reason, raw, readable))


def rejected(reason: str, raw: str, name: str | None = None) -> ParseReject:
    """The trace of a text that was refused."""
    sha256 = hashlib.sha256(raw.encode(errors="surrogatepass")).hexdigest()
    return ParseReject(reason=reason, length=len(raw), sha256=sha256, name=name)


def strip_event_tags(
    text: str, vocabulary: Vocabulary | None = None, origin: Origin = "model", nonce: str | None = None
) -> Stripped:
    """A whole text at once: feed and flush."""
    parser = AgentStreamParser(vocabulary, origin, nonce)
    fed, end = parser.feed(text), parser.flush()
    return Stripped(fed.display_text + end.display_text, fed.events + end.events, fed.rejects + end.rejects)
