"""The five examples in the console, in real Chromium: what a person sees of each, and what the log says."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, expect

from tests.e2e.broker_desk import raw
from tests.e2e.browser import watched
from tests.e2e.console import LIMIT_MS, chat, context_of, live, opened, say, session_of
from tests.e2e.test_crash import NOTHING, open_things
from tests.e2e.test_demo import Demo, running

SAVE, DELETE = "weight_entry_save_batch", "weight_entry_delete"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo keeps what it keeps."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(folder: Path) -> Iterator[Demo]:
    with running("broker", "--no-browser", TMPDIR=str(folder)) as demo:
        yield demo


@pytest.fixture(scope="module")
def context(chrome: Browser, demo: Demo) -> Iterator[BrowserContext]:
    """A browser that has followed the link, and so has who asks the server in the tests."""
    with context_of(chrome) as context:
        opened(context, demo.link).close()
        demo.cookie = "; ".join(f"{one['name']}={one['value']}" for one in context.cookies())
        yield context


@dataclass
class Visit:
    """A person in a new session of one example."""

    page: Page
    demo: Demo
    errors: list[str]
    posted: list[Any]  # what the page has posted as events

    @property
    def session(self) -> str:
        return session_of(self.page)

    def say(self, text: str, answer: str) -> None:
        """Write something, and read what comes of it."""
        say(self.page, text)
        self.sees(answer)

    def sees(self, text: str) -> None:
        expect(chat(self.page)).to_contain_text(text, timeout=LIMIT_MS)

    def card(self, tool: str, at: int = -1) -> Locator:
        return chat(self.page).get_by_label(f"Call of {tool}").nth(at)

    def press(self, name: str, inside: Locator | None = None) -> None:
        (inside or chat(self.page)).get_by_role("button", name=name, exact=True).last.click()

    def choice(self, name: str) -> Locator:
        """Whom a message is for, or where it is said."""
        return self.page.locator("tl-composer").get_by_role("combobox", name=name)

    def panel(self, name: str) -> Locator:
        self.page.get_by_role("tab", name=name).click()
        return self.page.get_by_role("tabpanel")

    def rest(self) -> list[Any]:
        """The log, when the page knows that nothing runs."""
        expect(self.page.get_by_role("button", name="Stop", exact=True)).to_be_disabled(timeout=LIMIT_MS)
        return self.log

    @property
    def log(self) -> list[Any]:
        status, lines, _ = raw(self.demo, f"/api/log?session={self.session}", None, self.demo.headers)
        assert status == 200
        return [json.loads(line) for line in lines.split(b"\n")[1:-1]]

    def told(self, type: str) -> list[Any]:
        """The payloads of a type."""
        return [event["payload"] for event in self.log if event["type"] == type]

    @property
    def state(self) -> Any:
        return self.demo.told(f"/api/state?session={self.session}")["state"]

    def leave(self) -> None:
        """Nothing is open, what the page sent is in the log, and entries are drawn by the types of events."""
        events = self.rest()
        assert open_things(events) == NOTHING
        kept = [(event["type"], event["payload"]) for event in events if event["origin"] == "ui"]
        assert [sent for sent in self.posted if (sent["type"], sent["payload"]) not in kept] == []
        check_kinds(self.page, events)
        assert self.errors == []
        self.page.close()


def visit(context: BrowserContext, demo: Demo, title: str) -> Visit:
    """Choose an example on the first page."""
    page = context.new_page()
    errors, posted = watched(page), list[Any]()

    def seen(request: Request) -> None:
        if request.method == "POST" and request.url.endswith("/api/events"):
            posted.extend(json.loads(request.post_data or "{}")["events"])

    page.on("request", seen)
    page.goto(demo.url)
    page.get_by_role("button", name=f"Start {title}").click()
    live(page)
    return Visit(page, demo, errors, posted)


DRAWN = """(places, name) => places.map(({ dataset }) => [Number(dataset.seq), dataset[name]])"""


def check_kinds(page: Page, events: list[Any]) -> None:
    """How something is drawn follows from its type alone; what has no look of its own says its type."""
    types = {event["seq"]: look_of(event) for event in events}
    looks: dict[str, set[str]] = {}
    for seq, kind in page.locator(".entry[data-seq]").evaluate_all(DRAWN, "kind"):
        looks.setdefault(types[seq], set()).add(kind)
    assert [name for name, kinds in looks.items() if len(kinds) > 1] == []
    assert looks["ui.message"] == {"message"}
    assert looks["assistant.message"] == {"text"}
    chips = page.locator(".events > [data-type]").evaluate_all(DRAWN, "type")
    assert [(seq, said) for seq, said in chips if types[seq] != said or said in looks] == []


def look_of(event: Any) -> str:
    """The type of an event; a block is a text, a thinking or a call."""
    return " ".join([event["type"], *([event["payload"]["kind"]] if event["type"] == "block.start" else [])])


# broker: an installer and a customer in one console, and buttons

PROJECT = ("£16,400, £1,400 deposit, panels with a battery, 5 kWp", "Who is the customer")
CONTACT = ("Mira Patel, 07700 900 456", "That is all. Your customer gets a link")
ELIGIBLE = ("Yes, all of it", "Over how many months")
MIRA = ("Mira Patel, employed, £52,000 a year, £1,100 a month", "Has anything happened")


def introduced(context: BrowserContext, demo: Demo) -> Visit:
    """A case whose customer has been told how the broker works."""
    there = visit(context, demo, "Credit broker")
    channel = there.choice("In")
    expect(channel).to_have_value("installer")
    there.say(*PROJECT)
    there.say(*CONTACT)
    channel.select_option("customer")
    there.say("Hello", "Do you understand how we work?")
    there.say("Yes, I understand", "Are you over 18")
    return there


def test_choice_of_a_channel_survives_a_reload_and_is_of_its_session(
    context: BrowserContext, demo: Demo
) -> None:
    there = visit(context, demo, "Credit broker")
    there.choice("In").select_option("customer")
    there.page.reload()
    expect(there.choice("In")).to_have_value("customer")
    there.say("Hello", "Do you understand how we work?")
    expect(visit(context, demo, "Credit broker").choice("In")).to_have_value("installer")


def test_the_broker_leads_an_installer_and_a_customer_to_an_offer(
    context: BrowserContext, demo: Demo
) -> None:
    there = introduced(context, demo)
    for words, answer in (
        ELIGIBLE,
        ("8 years", "a copy by e-mail"),
        ("mira@example.com", "Please give me your full name"),
        MIRA,
        ("No, nothing", "with the buttons on your page"),
    ):
        there.say(words, answer)
    assert there.posted == [], "so far nothing but words"
    there.press("I agree")
    there.sees("I have read it, ask the lenders")
    there.sees("then your application goes to the lenders")
    there.rest()  # the last word of the guide shows the summary again, which voids a click on the earlier one
    there.press("I have read it, ask the lenders")
    there.sees("Northgate Bank: approved")
    events = there.rest()
    clicked = [(sent["type"], sent["payload"]["action"]) for sent in there.posted]
    assert clicked == [
        ("ui.action", {"kind": "button.click", "button_id": name}) for name in ("grant", "confirm")
    ]
    for button in ("grant", "confirm"):  # the click is in the log before any model hears of it
        [at] = [at for at, event in enumerate(events) if f'"button_id": "{button}"' in json.dumps(event)]
        turn = [event["type"] for event in events if event.get("trace_id") == events[at]["trace_id"]]
        assert (events[at]["origin"], turn[0]) == ("ui", "ui.action")
        assert turn.index("broker.capture_consent" if button == "grant" else "broker.submit_application") > 0
    assert "agent-event" not in chat(there.page).inner_text()
    assert {event.get("channel") for event in events} == {None, "installer", "customer"}
    case = there.state
    assert (case["status"], case["selectedOfferId"]) == ("selected", "offer_1")
    assert (case["project"]["netLoanAmount"], case["personal"]["fullName"]) == (15_000, "Mira Patel")
    shown = there.panel("State").get_by_label("State", exact=True)
    expect(shown).to_contain_text('status: "selected"')
    assert shown.locator("tl-json").first.evaluate("(tree) => tree.value") == case
    there.leave()


def test_the_broker_ends_the_case_of_somebody_who_rents(context: BrowserContext, demo: Demo) -> None:
    there = introduced(context, demo)
    there.say("I am over 18 and a resident, I work, but I rent", "Your case rests here")
    assert (there.rest()[-1]["type"], there.state["status"]) == ("agent.end", "ineligible")
    expect(chat(there.page).get_by_role("button", name="I agree")).to_have_count(0)
    expect(there.panel("State")).to_contain_text("isHomeowner: false")
    there.leave()


# pipeline: agents in agents, and a hand-off


def test_the_pipeline_shows_who_works_in_which_call_and_who_takes_over(
    context: BrowserContext, demo: Demo
) -> None:
    there = visit(context, demo, "Research team")
    there.say("bees and honey", "Of 3 claims, 2 held.")
    there.sees("Planner handed over to Writer")
    bees = there.card("researcher", 0)
    expect(bees).to_contain_text("bees")
    expect(bees.locator("tl-call").get_by_label("Call of fact_checker")).to_have_count(2)
    checker = bees.locator("tl-call").get_by_label("Call of fact_checker").nth(1)
    expect(checker.locator("tl-call").get_by_label("Call of look_up")).to_have_attribute("data-state", "done")
    expect(checker).to_contain_text("Refuted: A bumblebee is too heavy to fly.")
    expect(chat(there.page).get_by_role("heading", name="On bees and honey")).to_be_visible()
    there.say("unicorns", "Nobody found anything about unicorns")
    events = there.rest()
    tree = [(event["agent_name"], event["depth"]) for event in events if event["type"] == "agent.start"]
    first = [("Planner", 0)] + [("Researcher", 1)] * 2 + [("Fact checker", 2)] * 3 + [("Writer", 0)]
    assert tree == [*first, ("Planner", 0), ("Researcher", 1)]
    assert [payload["to"] for payload in there.told("agent.handoff")] == ["Writer"]
    agents = there.panel("Agents")
    for name in ("Planner", "Fact checker", "Writer"):
        expect(agents).to_contain_text(name)
    there.leave()


# weights: a form, a table, an approval, and an executor elsewhere


def stored(folder: Path) -> list[tuple[str, float, str]]:
    """What the executor has in its table."""
    [file] = folder.glob("turnlog-demo-*/weights.db")
    with closing(sqlite3.connect(file, timeout=30)) as db:
        return db.execute(
            "SELECT substr(measured_at, 1, 10), weight_lbs, notes FROM weight_entry ORDER BY measured_at"
        ).fetchall()


def test_the_weigh_ins_are_refused_at_the_field_edited_and_deleted_with_a_yes(
    context: BrowserContext, demo: Demo, folder: Path
) -> None:
    there = visit(context, demo, "Weigh-ins")
    there.say("205.4 on 2026-02-03, after a run", "Please confirm the entry")
    form = chat(there.page).locator("[data-form=weight_entry]").last
    expect(form.get_by_label("Day")).to_have_value("2026-02-03")
    form.get_by_label("Weight (lbs)").fill("-5")
    there.press("Save", form)
    there.sees("That cannot be saved: weight_lbs must be > 0")
    expect(form.locator("[data-name=weight_lbs]")).to_contain_text("must be > 0", timeout=LIMIT_MS)
    assert stored(folder) == []
    form.get_by_label("Weight (lbs)").fill("201.5")
    there.press("Save", form)
    there.sees("Saved: 201.5 lbs on 2026-02-03.")
    assert stored(folder) == [("2026-02-03", 201.5, "after a run")]
    assert [sent["payload"]["action"]["kind"] for sent in there.posted] == ["form.submit"] * 2
    edited(there)
    assert stored(folder) == [("2026-02-03", 199.9, "after a run"), ("2026-02-10", 198.0, "")]
    deleting(there, "Deny", "Nothing is deleted: a person said no.")
    assert len(stored(folder)) == 2
    deleting(there, "Approve", "Deleted: 1.")
    assert stored(folder) == [("2026-02-10", 198.0, "")]
    answers = [event for event in there.rest() if event["type"] == "tool.result"]
    remote = [one for one in answers if one["payload"]["tool"] in (SAVE, DELETE) and "actor" in one]
    assert {one["actor"] for one in remote} == {"worker"}, "another process has answered"
    saved = [(SAVE, False), *[(SAVE, True)] * 4]
    assert [(one["payload"]["tool"], one["payload"]["ok"]) for one in remote] == [*saved, (DELETE, True)]
    there.leave()


def edited(there: Visit) -> None:
    """Change a cell of the table, and add a row."""
    there.say("show my weights", "These are your entries")
    table = chat(there.page).locator("[data-table=weight_entries]").last
    table.get_by_label("Weight (lbs), row 1").fill("199.9")
    there.press("Add row", table)
    table.get_by_label("Measured, row 2", exact=True).fill("2026-02-10")
    table.get_by_label("Weight (lbs), row 2").fill("0")
    there.press("Save", table)
    expect(table).to_contain_text("must be > 0")
    table.get_by_label("Weight (lbs), row 2").fill("198")
    there.press("Save", table)
    there.sees("Saved: 2 entries.")


def deleting(there: Visit, decision: str, said: str) -> None:
    """Delete the first row, save, and decide."""
    there.rest()  # the agent shows the table again after its sentence
    table = chat(there.page).locator("[data-table=weight_entries][data-state=open]").last
    expect(table.get_by_label("Weight (lbs), row 2")).to_be_editable(timeout=LIMIT_MS)
    table.get_by_label("Delete row 2").click()
    there.press("Save", table)
    asked = there.card(DELETE)
    expect(asked).to_have_attribute("data-state", "waiting", timeout=LIMIT_MS)
    expect(asked).to_contain_text("It changes the database")
    there.press(decision, asked)
    there.sees(said)
    expect(chat(there.page).get_by_role("button", name=decision)).to_have_count(0)


# assistant: everything that a provider sends

CALM, WINDY = "Cork", "Tromsø"


def test_the_assistant_thinks_cites_draws_asks_and_writes_a_file(context: BrowserContext, demo: Demo) -> None:
    there = visit(context, demo, "Balloon briefing")
    there.say(f"Can we fly from {CALM}?", "Shall I write the flight plan for Göreme instead?")
    log = chat(there.page)
    thinking = log.locator(".entry.thinking details").first
    expect(thinking).not_to_have_attribute("open", "")
    thinking.locator("summary").click()
    expect(thinking.locator("p")).to_have_text(
        f"A launch at {CALM}: the rules, then wind, sky, field and tower."
    )
    sources = log.get_by_label("Sources").first.get_by_role("listitem")
    expect(sources).to_have_count(2)
    expect(sources.first).to_contain_text("No launch when the wind near the ground is above ten knots.")
    expect(sources.first.get_by_role("link")).to_have_attribute(
        "href", "https://example.org/balloons/handbook"
    )
    for tool in ("wind", "camera"):
        picture = there.card(tool).get_by_alt_text(f"Made by {tool}")
        picture.scroll_into_view_if_needed()
        picture.evaluate("image => image.decode()")
    expect(there.card("register")).to_have_attribute("data-state", "error")
    expect(there.card("tower").locator("tl-flow")).to_contain_text(f"There is no tower at {CALM}.")
    there.press("Yes", there.card("confirm"))
    there.sees("Files: flight-plan.txt")
    there.sees("The plan is written: launch at 08:00")
    there.say(f"And from {WINDY}?", "no flight today")
    events = there.rest()
    assert [payload["result"] for payload in there.told("tool.result") if payload["tool"] == "confirm"] == [
        True
    ]
    assert [file["filename"] for [file] in (one["files"] for one in there.told("assistant.files"))] == [
        "flight-plan.txt"
    ]
    assert len(there.told("block.retract")) == 2, "each briefing begins with words that break off"
    assert "Before a flight I look at theBefore" not in log.inner_text()
    assert {event["depth"] for event in events if event["type"] == "agent.start"} == {0, 1}
    there.leave()


# office: a process, its team, its permissions, its files


def seat(there: Visit, number: int) -> Locator:
    return there.page.locator("tl-roster .seat").nth(number)


def test_the_office_summons_a_team_that_sleeps_and_wakes(context: BrowserContext, demo: Demo) -> None:
    there = visit(context, demo, "Julian's office")
    there.say("Good morning", "Good morning. I am Julian.")
    there.panel("Agents")
    there.press("Summon", there.page.locator("tl-roster"))
    there.sees("Welcome, Lyra, Orin and Wren.")
    for number, name in enumerate(("Lyra", "Orin", "Wren")):
        expect(seat(there, number)).to_contain_text(name)
        expect(seat(there, number)).to_have_attribute("data-state", "alive")
    expect(seat(there, 3)).to_have_attribute("data-state", "free")
    there.choice("To").select_option("Lyra")
    there.say("Do you sort stamps?", "Lyra here. You said: Do you sort stamps?")
    there.choice("To").select_option("")
    there.say("Orin may go", "Orin left.")
    expect(seat(there, 1)).to_have_attribute("data-state", "sleeping")
    other = opened(context, there.page.url)
    there.press("End session", there.page.locator("tl-roster"))
    for page in (there.page, other):  # a tab knows it as well, whatever becomes of the first
        expect(page.locator("tl-roster .seat[data-state=sleeping]")).to_have_count(3, timeout=LIMIT_MS)
    there.page.reload()
    live(there.page)
    expect(other.locator("tl-roster .seat[data-state=sleeping]")).to_have_count(3)
    other.close()
    for number, name in ((0, "Lyra"), (1, "Orin")):
        there.press(f"Wake {name}, seat {number}", seat(there, number))
        expect(seat(there, number)).to_have_attribute("data-state", "alive", timeout=LIMIT_MS)
    there.sees("Orin woke up.")
    woken = [command["agents"] for one in there.told("ui.command") if "agents" in (command := one["command"])]
    assert [(one["name"], one["seat"], one["has_soul"], one["has_transcript"]) for [one] in woken] == [
        ("Lyra", 0, True, True),
        ("Orin", 1, True, False),
    ]
    grid = {one["name"]: one["state"] for one in there.state["grid"] if one}
    assert grid == {"Lyra": "alive", "Orin": "alive", "Wren": "sleeping", "Julian": "alive"}
    assert "[AGENT" not in there.page.inner_text("body")
    there.leave()


def test_the_office_writes_a_page_and_deletes_it_if_somebody_agrees(
    context: BrowserContext, demo: Demo, folder: Path
) -> None:
    there = visit(context, demo, "Julian's office")
    there.say("Write about comets", "I wrote memory/notes/comets.html.")
    [page] = folder.glob("turnlog-demo-*/office/memory/notes/comets.html")
    files = there.panel("Documents").locator("tl-files")
    files.get_by_role("button", name="comets.html").click()
    expect(files).to_contain_text("Notes about comets")
    for decision, said in (
        ("Deny", "I left memory/notes/comets.html alone"),
        ("Approve", "memory/notes/comets.html is gone."),
    ):
        say(there.page, "Delete it")
        asked = there.card("Bash")
        expect(asked).to_have_attribute("data-state", "waiting", timeout=LIMIT_MS)
        expect(asked).to_contain_text("rm memory/notes/comets.html")
        assert page.exists()
        there.press(decision, asked)
        there.sees(said)
    assert not page.exists()
    decisions = [payload["decision"] for payload in there.told("approval.decision")]
    assert decisions == ["deny", "approve"]
    assert list(there.state["artifacts"]) == ["memory/notes/comets.html"]
    documents = demo.told(f"/api/documents?session={there.session}&type=artifact")["documents"]
    assert [one["body"]["filename"] for one in documents] == ["notes/comets.html"]
    there.leave()
