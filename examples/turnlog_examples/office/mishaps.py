"""What can go wrong, on request: messages that begin with `/` and what they make of a turn.

    /crash [code]      the process dies in mid-sentence, of a signal if the code is below 0
    /die <lines>       the process is killed after so many more lines, whatever they are
    /leave             it ends in order, in mid-turn
    /auth              the provider does not know who is asking; the turn fails
    /login             the process signs in
    /overloaded        the provider cannot; the turn fails and may be tried again
    /stumble           the provider fails in mid-sentence, and the text comes again
    /garbage           lines that are none, and one of an unknown type
    /wait              nothing comes any more, until somebody interrupts
    /long <characters> a long text
    /dump <characters> a page that long is written and read
    /compact           the conversation is made shorter (the process does this itself)

It uses what every turn uses; nothing is simulated that the host could see as such.
"""

from collections.abc import Callable

from turnlog_examples.office.script import (
    Aside,
    Die,
    Fail,
    Hang,
    Mind,
    Raw,
    Say,
    Stumble,
    Turn,
    Use,
    answer,
)


def crash(code: int) -> Turn:
    yield [Say("Before it."), Die("I feel a little", code or 1)]


def leave(_: int) -> Turn:
    yield [Die("I will be", 0)]


def auth(_: int) -> Turn:
    yield [Fail("authentication_failed", "The key is not valid.")]


def overloaded(_: int) -> Turn:
    yield [Fail("overloaded", "Too many are asking just now.")]


def login(_: int) -> Turn:
    waits = {"isAuthenticating": True, "output": ["open the link"]}
    yield [Aside("auth_status", waits), Aside("auth_status", {"isAuthenticating": False, "output": []})]
    yield [Say("I am signed in.")]


def stumble(_: int) -> Turn:
    yield [Stumble("It is a long way to the harbour, and the ships are waiting.")]


def garbage(_: int) -> Turn:
    broken = b'{"type": "assistant", "message": {"id": \nno line at all\n\xff\xfe\n[1, 2]\n'
    yield [Raw(broken), Aside("weather_report", {"outlook": "fair"}), Say("Did you hear something?")]


def wait(_: int) -> Turn:
    yield [Say("One moment."), Hang()]


def long(characters: int) -> Turn:
    yield [Say(words_of(characters))]


def dump(characters: int) -> Turn:
    path = "memory/long.txt"
    yield [Use("Write", {"file_path": path, "content": words_of(characters)})]
    yield [Use("Read", {"file_path": path})]
    yield [Say("That was long.")]


def words_of(characters: int) -> str:
    """A text of so many characters."""
    line = "All work and no play makes a dull page. "
    return (line * (characters // len(line) + 1))[:characters]


MISHAPS: dict[str, Callable[[int], Turn]] = {
    "/crash": crash,
    "/leave": leave,
    "/auth": auth,
    "/login": login,
    "/overloaded": overloaded,
    "/stumble": stumble,
    "/garbage": garbage,
    "/wait": wait,
    "/long": long,
    "/dump": dump,
}


def turn_of(mind: Mind, text: str) -> Turn:
    """The turn that a message makes, in order or not."""
    mishap = MISHAPS.get(first_word(text))
    return mishap(number_in(text)) if mishap else answer(mind, text)


def first_word(text: str) -> str:
    """The word a message begins with."""
    return (text.split(maxsplit=1) or [""])[0]


def number_in(text: str) -> int:
    """The number behind it, or nothing."""
    words = text.split()
    return int(words[1]) if len(words) > 1 and words[1].lstrip("-").isdecimal() else 0
