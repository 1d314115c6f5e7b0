"""What can go wrong, on request: messages that begin with `/` and what they make of a turn.

    /crash [code]      the process dies in mid-sentence, of a signal if the code is below 0
    /stumble           the provider fails in mid-sentence, and the text comes again
    /compact           the conversation is made shorter (the process does this itself)

It uses what every turn uses; the host cannot tell it from the original. Tests add others.
"""

from collections.abc import Callable, Mapping

from turnlog_examples.demo_office.script import Die, Mind, Say, Stumble, Turn, answer

MakeTurn = Callable[[int], Turn]  # the number behind the word


def crash(code: int) -> Turn:
    yield [Say("Before it."), Die("I feel a little", code or 1)]


def stumble(_: int) -> Turn:
    yield [Stumble("It is a long way to the harbour, and the ships are waiting.")]


MISHAPS: Mapping[str, MakeTurn] = {"/crash": crash, "/stumble": stumble}


def turn_of(mishaps: Mapping[str, MakeTurn], mind: Mind, text: str) -> Turn:
    """The turn that a message makes, in order or not."""
    mishap = mishaps.get(first_word(text))
    return mishap(number_in(text)) if mishap else answer(mind, text)


def first_word(text: str) -> str:
    """The word a message begins with."""
    return (text.split(maxsplit=1) or [""])[0]


def number_in(text: str) -> int:
    """The number behind it, or nothing."""
    words = text.split()
    return int(words[1]) if len(words) > 1 and words[1].lstrip("-").isdecimal() else 0
