"""Rows 8 and 9: whatever stands in a log, nothing of it runs in a console or leaves the browser.

The same log is shown by consoles that lack some of their defences (`console_layers`), the real one last. All
of it is looked at once, in one browser; the tests say what must have been seen.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.e2e.harness import ROOT, Server, running
from tests.security.console_layers import (
    ALL,
    LAYERS,
    MARKDOWN,
    NONE,
    POLICY,
    PURIFY,
    SANITISERS,
    WEB,
    Layer,
    build_all,
)
from tests.security.console_listener import listening
from tests.security.console_log import Sessions, everywhere, hostile_log
from tests.security.console_payloads import (
    BREAKING,
    CALM,
    COLOURS,
    EVERY,
    KEYS,
    PAYLOADS,
    RUDE,
    SHARP,
    SOURCES,
    hits,
    payloads_of,
)
from tests.security.console_visit import Seen, Visit, Visitor, evil_browser, looked_up

APPS = "tests.security.console_apps"
PROSE = {"text", "aborted"}  # ways into markdown, where a payload may be words that are not its own
FOLDED = {"actor", "prompt", "ended", "location"}  # ways that only the details of an event show
ADDRESSES = {"cite", "cite-source", "images", "in-result", "view-id"}  # ways of payloads that are no texts
UNDRAWN = {"ended", "location", "cell"}  # in details and in fields
LINE = re.compile(r"^\| ([a-z]+) \| .* \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)


class Plans:
    """What is visited of a console."""

    def __init__(self, sessions: Sessions) -> None:
        self._of = sessions
        self.exported = ""

    def prose(self, visit: Visit) -> None:
        """What was said."""
        visit.open(self._of.short)
        visit.chat()
        self._rude(visit)

    def short(self, visit: Visit) -> None:
        """As much as a page without defences survives."""
        visit.home(SHARP.by("alert"))
        visit.open(self._of.short)
        visit.chat()
        visit.panels(deep=False)
        visit.until([*CALM.all, *COLOURS, *SOURCES, *KEYS])
        self._rude(visit)

    def bare(self, visit: Visit) -> None:
        """The same, and live."""
        self.short(visit)
        visit.open(self._of.short_live)
        visit.talk()

    def all(self, visit: Visit) -> None:
        """Everything, written down and live, and once more after a reload."""
        visit.home(CALM.by("alert"))
        visit.open(self._of.full)
        visit.chat()
        visit.panels(deep=True)
        self.exported = visit.export()
        visit.open(self._of.live)
        visit.talk()
        visit.open(self._of.live)
        visit.chat()
        self._rude(visit)

    def _rude(self, visit: Visit) -> None:
        for session, attacks in ((self._of.rude, RUDE), (self._of.breaking, BREAKING)):
            visit.open(session)
            visit.broken()
            visit.until(attacks.all)


def rendered(node: str, texts: Sequence[str]) -> str:
    """Markdown as a viewer shows it that takes no care."""
    script = (
        f"import {{ marked }} from {json.dumps(str(WEB / 'node_modules/marked/lib/marked.esm.js'))};"
        "const texts = JSON.parse(await new Response(process.stdin).text());"
        "console.log(texts.map((text) => marked.parse(text)).join(''));"
    )
    command = [node, "--input-type=module", "-e", script]
    return subprocess.run(command, input=json.dumps(texts), text=True, check=True, capture_output=True).stdout


def visited(node: str, server: Server, sessions: Sessions, visitor: Visitor) -> None:
    """Visit every layer, the whole console last: sessions with hostile titles are for it alone."""
    plans = Plans(sessions)
    visitor.visit(SANITISERS, plans.short)
    visitor.visit(MARKDOWN, plans.prose)
    visitor.visit(PURIFY, plans.prose)
    visitor.visit(POLICY, plans.short)
    visitor.visit(NONE, plans.bare)
    for title in CALM.names("title")[::2]:
        server.post("/api/sessions", {"app": "mild", "title": title})
    visitor.visit(ALL, plans.all)
    visitor.show("export", rendered(node, [plans.exported]))
    visitor.show("texts", rendered(node, CALM.by("text")))


@pytest.fixture(scope="module")
def seen(whole_chromium: str, node: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What was seen of every layer."""
    folder = tmp_path_factory.mktemp("console")
    build_all(node, folder / "builds")
    sessions = hostile_log(folder)
    program = [sys.executable, "-m", "tests.security.console_server", str(folder / "builds")]
    with (
        running(f"{APPS}:hostile", folder, program=program, options=[f"{APPS}:mild"]) as server,
        listening() as listener,
        evil_browser(whole_chromium, folder, listener.server_port) as context,
    ):
        visitor = Visitor(context, server, listener)
        visited(node, server, sessions, visitor)
    looked_up(folder / "net.json", visitor.seen.values())
    return visitor.seen


def got_through(seen: Seen) -> dict[str, object]:
    """Everything by which a payload may have done something, if it did."""
    told = {
        "ran": seen.ran,
        "loaded": seen.loaded,
        "looked up": seen.looked_up,
        "asked for": seen.foreign,
        "connections": seen.connections,
        "dialogs": seen.dialogs,
        "popups": seen.popups,
        "errors": seen.errors,
        "stood": seen.stood,
    }
    return {name: what for name, what in told.items() if what}


def test_there_are_enough_payloads_and_each_has_a_name_of_its_own() -> None:
    assert len(PAYLOADS) >= 100
    assert len({attack.id for attack in EVERY}) == len(EVERY)


def test_nothing_of_a_log_runs_in_the_console_or_leaves_it(seen: dict[str, Seen]) -> None:
    assert got_through(seen["all"]) == {}
    assert seen["all"].refused == []  # the policy had nothing to do


def test_all_of_it_was_shown_as_text(seen: dict[str, Seen]) -> None:
    shown = seen["all"].shown
    told = {hit for event in everywhere(CALM) for hit in hits(event.body.decode())}
    expected = {hit for hit in told if hit[1] not in PROSE | FOLDED | ADDRESSES}
    assert len(expected) > 2000
    assert expected - shown == set()
    assert FOLDED | PROSE | {"live", "given", "progress", "title", "guide", "try"} <= {
        way for _, way in shown
    }
    assert seen["all"].texts > len(CALM.all)


def test_without_its_policy_nothing_gets_through(seen: dict[str, Seen]) -> None:
    assert got_through(seen["sanitisers"]) == {}


@pytest.mark.parametrize("half", ["markdown", "purify"])
def test_either_half_of_the_sanitisers_holds_alone(seen: dict[str, Seen], half: str) -> None:
    assert got_through(seen[half]) == {}


def test_with_its_policy_alone_nothing_runs_and_nothing_on_the_page_is_loaded(
    seen: dict[str, Seen],
) -> None:
    assert seen["policy"].ran == set()
    assert payloads_of(seen["policy"].loaded) <= {"meta-refresh"}
    assert len(seen["policy"].refused) > 100  # it had much to do


def test_control_with_its_policy_alone_a_page_is_led_away_and_names_are_looked_up(
    seen: dict[str, Seen],
) -> None:
    assert payloads_of(seen["policy"].loaded) == {"meta-refresh"}
    assert {"preconnect", "dns-prefetch"} <= seen["policy"].looked_up


def test_control_without_defences_every_payload_does_what_it_can(seen: dict[str, Seen]) -> None:
    none = seen["none"]
    found = {
        "run": payloads_of(none.ran),
        "load": payloads_of(none.loaded),
        "look up": none.looked_up,
        "stand": none.standing,
    }
    idle = {attack.id: attack.seen - {name for name in found if attack.id in found[name]} for attack in EVERY}
    assert {payload: what for payload, what in idle.items() if what} == {}


def test_control_without_defences_every_way_in_leads_out(seen: dict[str, Seen]) -> None:
    payloads = {attack.id for attack in SHARP.all}
    told = {hit for event in everywhere(SHARP) for hit in hits(event.body.decode())}
    led_out = {way for _, way in seen["none"].ran | seen["none"].loaded}
    assert {way for payload, way in told if payload in payloads} - led_out == UNDRAWN
    assert {"title", "app", "guide", "try", "alert", "live", "given", "progress"} <= led_out


def test_an_export_as_markdown_runs_and_loads_nothing_where_no_care_is_taken(seen: dict[str, Seen]) -> None:
    assert (seen["export"].ran, seen["export"].loaded, seen["export"].looked_up) == (set(), set(), set())
    assert payloads_of(seen["export"].shown) > {attack.id for attack in SHARP.all}


def test_control_the_same_texts_as_they_are_do_both(seen: dict[str, Seen]) -> None:
    assert len(payloads_of(seen["texts"].ran)) > 10
    assert len(payloads_of(seen["texts"].loaded)) > 10


def known(layer: Layer) -> tuple[int, int, int]:
    """Of the payloads that get through, how many run, load something, and look a name up."""
    through = [attack for attack in EVERY if attack.id in layer.lets]
    loads = [attack for attack in through if "load" in attack.seen]
    looks = [attack for attack in through if attack.seen & {"load", "look up"}]
    return sum("run" in attack.seen for attack in through), len(loads), len(looks)


def test_the_table_of_layers_says_what_gets_through() -> None:
    text = (ROOT / "docs" / "threats.md").read_text()
    told = {name: tuple(map(int, counts)) for name, *counts in LINE.findall(text)}
    assert told == {layer.name: known(layer) for layer in LAYERS}
    assert f"{len(EVERY)} payloads" in text
