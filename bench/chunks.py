"""How fast a payload becomes messages: `python -m bench.chunks`.

1 MB of each kind of text, against one plain msgspec encode of it. Every round runs all candidates, ratios are
taken inside a round, the table shows medians. Goal C2: mixed text at 0.35 of a plain encode. "mixed" is
prose, code, JSON and text beyond ASCII; escaped it grows by 15 %, as the text behind the goal did. "shrink"
cuts, measures and tries again with a tenth less; it is not the program behind C2's 5x, so it has no goal.
"""

import sys
import time
from collections.abc import Callable, Mapping
from statistics import median

import msgspec

from turnlog.wire.chunks import chunk

ROUNDS = 7
PAYLOAD_BYTES = 1_000_000
AGENT = "0199a8f2-6c5e-7d31-9a40-3f2b8c1d4e5f"

PROSE = 'The quick brown fox jumps over the lazy dog, again and again. "Why?" asked the dog.\n'
CODE = 'def scan(path):\n\tif not path:\n\t\treturn ""\n\treturn open(path, "rb").read()\n\n'
JSON = '{"role":"user","content":[{"type":"text","text":"He said \\"no\\".\\n"}]},'
WORLD = "Grüße aus München, 12 € für 東京タワー 😀, voilà. "

TEXTS = {
    "mixed": PROSE * 20 + CODE * 20 + JSON * 40 + WORLD * 20,
    "ascii": "The quick brown fox jumps over the lazy dog. ",
    "quotes": '"',
    "json": JSON,
    "emoji": "😀",
}

Candidates = Mapping[str, Callable[[], object]]
Times = dict[str, list[float]]


def interleaved(candidates: Candidates, number: int, rounds: int = ROUNDS) -> Times:
    """Seconds per call: all candidates once per round, so that noise hits all alike."""
    times: Times = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            start = time.perf_counter()
            for _ in range(number):
                call()
            times[name].append((time.perf_counter() - start) / number)
    return times


def speed(times: Times, name: str, base: str) -> float:
    """How many times faster than `base`: the median of the rounds' own ratios."""
    return median(other / own for own, other in zip(times[name], times[base], strict=True))


def verdict(what: str, ratio: float, goal: float) -> bool:
    """Print one goal and whether it is met."""
    print(f"{what}: {ratio:.2f}, goal {goal:.2f}, {'met' if ratio >= goal else 'MISSED'}")
    return ratio >= goal


def payload(kind: str) -> str:
    """1 MB of text of a kind."""
    text = TEXTS[kind] * (PAYLOAD_BYTES // len(TEXTS[kind].encode()) + 1)
    return text.encode()[:PAYLOAD_BYTES].decode(errors="ignore")


def shrink(text: str, limit_bytes: int = 2048) -> list[bytes]:
    """The obvious way: cut, encode, and try again with a tenth less until it fits."""
    messages, start = [], 0
    while start < len(text):
        size = limit_bytes - 87
        while True:
            part = text[start : start + size]
            fields = {"type": "text", "agent": AGENT, "final": start + size >= len(text), "delta": part}
            message = msgspec.json.encode(fields)
            if len(message) <= limit_bytes:
                break
            size = size * 9 // 10
        messages.append(message)
        start += size
    return messages


def measure(kind: str) -> Times:
    """One table row: the plain encode, the chunks and the shrinking."""
    text = payload(kind)
    candidates: Candidates = {
        "plain": lambda: msgspec.json.encode(text),
        "chunk": lambda: chunk("text", AGENT, text),
        "shrink": lambda: shrink(text),
    }
    times = interleaved(candidates, number=5)
    messages = len(chunk("text", AGENT, text))
    rate = len(text.encode()) / 1e6 / median(times["chunk"])
    print(
        f"| {kind} | {messages} | {median(times['plain']) * 1e3:.2f} | {median(times['chunk']) * 1e3:.2f} "
        f"| {rate:.0f} | {speed(times, 'chunk', 'plain'):.2f} | {speed(times, 'chunk', 'shrink'):.1f} |"
    )
    return times


def main() -> int:
    """Print the table and the goals; the number of missed goals."""
    print("| text | messages | plain ms | chunk ms | MB/s | x of plain | x shrink |")
    print("|---|---|---|---|---|---|---|")
    times = {kind: measure(kind) for kind in TEXTS}
    met = verdict("C2 mixed, of a plain encode", speed(times["mixed"], "chunk", "plain"), 0.35)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
