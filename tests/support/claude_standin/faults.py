"""Faults of the Claude CLI, on request: messages that begin with `/` and what they make of a turn.

/leave             it ends in order, in mid-turn
/auth              the provider does not know who is asking; the turn fails
/login             the process signs in
/overloaded        the provider cannot; the turn fails and may be tried again
/garbage           lines that are none, and one of an unknown type
/wait              nothing comes any more, until the host interrupts
/long <characters> a long text
/dump <characters> a page that long is written and read
"""

from turnlog_examples.demo_office.mishaps import MISHAPS, MakeTurn
from turnlog_examples.demo_office.script import Aside, Die, Fail, Hang, Raw, Say, Turn, Use


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


FAULTS: dict[str, MakeTurn] = {
    **MISHAPS,
    "/leave": leave,
    "/auth": auth,
    "/login": login,
    "/overloaded": overloaded,
    "/garbage": garbage,
    "/wait": wait,
    "/long": long,
    "/dump": dump,
}
