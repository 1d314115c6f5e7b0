"""How fast inline tags are found: `python -m bench.tags`.

1 MB of prose with some code, some `<` and 5 % tags. Every round runs all candidates, ratios are taken inside
a round, the tables show medians of CPU time. Goal P1: in chunks of 8..40 characters at 0.20 of a method that
returns the same kind of answer and does nothing else ("return"; "bare return" gives None, as no parser can).
P3: on hostile input 200,000 characters cost at most 1.5 times as much per character as 20,000. P4, if it can
be had: in one piece at 0.40 of `re.sub` with a lazy pattern, which sees neither code nor strings.
"""

import json
import random
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from turnlog.parse import AgentStreamParser, ParsedText, TagEvent, strip_event_tags

ROUNDS = 9
CORPUS_CHARS = 1_000_000
SIZES = (20_000, 200_000)
STRING = '<agent-event type="t" data=\'{"note":"'
HOSTILE = {
    "many <": ("", "<"),
    "unclosed tag": (STRING, "x"),
    "/> in strings": (STRING, "/> "),
    "backslashes": (STRING, "\\"),
    "near-tags": ("", "<agent-even"),
    "deep braces": ('<agent-event type="t" data=\'', "{"),
}
LAZY = re.compile(r"""<agent-event\s+type="([^"]*)"\s+data='(\{.*?\})'\s*/>""", re.DOTALL)

Times = dict[str, list[float]]


class Return:
    """The bound of the interface: an answer, and nothing else."""

    def feed(self, chunk: str) -> ParsedText:
        return ParsedText(chunk, [], [])

    def flush(self) -> None:
        pass


class BareReturn:
    """The bound of the language: a method call."""

    def feed(self, chunk: str) -> None:
        return None

    def flush(self) -> None:
        pass


def corpus(size: int, seed: int = 1) -> str:
    """Paragraphs of words; code and `<` in every 200th word each, a tag after every sixth paragraph."""
    pick = random.Random(seed)
    words = ["".join(pick.choices("abcdefghijklmnopqrstuvwxyz", k=pick.randint(2, 9))) for _ in range(3000)]
    forms = ["{}"] * 180 + ["{},"] * 10 + ["{}."] * 6 + ["**{}**"] * 2 + ["`{}`", "{} < 5"]
    parts: list[str] = []
    while len(parts) * 560 < size:
        parts.append(" ".join(pick.choice(forms).format(word) for word in pick.choices(words, k=80)))
        if len(parts) % 6 == 0:
            note = " ".join(pick.choices(words, k=pick.randint(1, 16)))
            data = json.dumps(
                {"mobile": "07700 900 123", "fullName": "John's Smith", "note": "a } b " + note}
            )
            parts[-1] += f"\n<agent-event type=\"record_contact\" data='{data}' />"
    return "\n\n".join(parts)


def cut(text: str, least: int = 8, most: int = 40) -> list[str]:
    """The text in chunks of random size."""
    pick, chunks, at = random.Random(2), [], 0
    while at < len(text):
        size = pick.randint(least, most)
        chunks.append(text[at : at + size])
        at += size
    return chunks


def interleaved(candidates: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> Times:
    """Seconds per call: all candidates once per round, so that noise hits all alike."""
    times: Times = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return times


def speed(times: Times, name: str, base: str) -> float:
    """How many times faster than `base`: the median of the rounds' own ratios."""
    return median(other / own for own, other in zip(times[name], times[base], strict=True))


def verdict(what: str, ratio: float, goal: float, met: bool) -> bool:
    """Print one goal and whether it is met."""
    print(f"{what}: {ratio:.2f}, goal {goal:.2f}, {'met' if met else 'MISSED'}")
    return met


def stream(parser: AgentStreamParser | Return | BareReturn, chunks: Sequence[str], times: int = 1) -> None:
    """Feed everything."""
    feed = parser.feed
    for _ in range(times):
        for chunk in chunks:
            feed(chunk)
        parser.flush()


def substitute(text: str) -> tuple[str, list[TagEvent]]:
    """The obvious way."""
    events: list[TagEvent] = []

    def take(match: re.Match[str]) -> str:
        events.append(TagEvent(match[1], json.loads(match[2])))
        return ""

    return LAZY.sub(take, text), events


def streaming(text: str) -> bool:
    """P1."""
    chunks = cut(text)
    times = interleaved(
        {
            "return": lambda: stream(Return(), chunks),
            "bare return": lambda: stream(BareReturn(), chunks),
            "tags": lambda: stream(AgentStreamParser(), chunks),
        }
    )
    print(f"\n| {len(chunks)} chunks of 8..40 | ns per chunk | MB/s | x of return | x of bare return |")
    print("|---|---|---|---|---|")
    for name, seconds in times.items():
        each = median(seconds)
        print(
            f"| {name} | {each / len(chunks) * 1e9:.0f} | {len(text) / each / 1e6:.0f} "
            f"| {speed(times, name, 'return'):.2f} | {speed(times, name, 'bare return'):.2f} |"
        )
    ratio = speed(times, "tags", "return")
    return verdict("P1 streaming, of a method that only returns", ratio, 0.20, ratio >= 0.20)


def one_piece(text: str) -> bool:
    """P4."""
    assert strip_event_tags(text).events == substitute(text)[1]
    times = interleaved({"re.sub": lambda: substitute(text), "tags": lambda: strip_event_tags(text)})
    print("\n| one piece | ms | MB/s | x of re.sub |")
    print("|---|---|---|---|")
    for name, seconds in times.items():
        each = median(seconds)
        ratio = speed(times, name, "re.sub")
        print(f"| {name} | {each * 1e3:.1f} | {len(text) / each / 1e6:.0f} | {ratio:.2f} |")
    ratio = speed(times, "tags", "re.sub")
    return verdict("P4 one piece, of re.sub", ratio, 0.40, ratio >= 0.40)


def hostile(start: str, piece: str, size: int) -> list[str]:
    """Chunks of 24 characters."""
    text = (start + piece * size)[:size]
    return [text[at : at + 24] for at in range(0, size, 24)]


def linear(name: str) -> bool:
    """P3 for one input."""
    small, large = (hostile(*HOSTILE[name], size) for size in SIZES)
    often = SIZES[1] // SIZES[0]  # as many characters for both
    times = interleaved(
        {
            "small": lambda: stream(AgentStreamParser(), small, often),
            "large": lambda: stream(AgentStreamParser(), large),
        }
    )
    growth = speed(times, "small", "large")
    costs = [median(times[key]) / SIZES[1] * 1e9 for key in ("small", "large")]
    return verdict(
        f"P3 {name}, {costs[0]:.0f} -> {costs[1]:.0f} ns per character", growth, 1.50, growth <= 1.50
    )


def main() -> int:
    """Print the tables and the goals; the exit code says whether all but P4 are met."""
    text = corpus(CORPUS_CHARS)
    tags = re.findall("<agent-event.*?/>", text)
    print(f"{len(text)} characters, {len(tags)} tags, {sum(map(len, tags)) / len(text):.1%} of the text")
    met = [streaming(text)]
    one_piece(text)
    print()
    met += [linear(name) for name in HOSTILE]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
