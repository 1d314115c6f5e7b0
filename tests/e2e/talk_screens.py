"""The screens of the page of participants: how each is reached, and which pictures of it are in the docs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from playwright.sync_api import Browser, BrowserContext, FilePayload, Page, expect

from tests.e2e.guests import DESK, PHONE, box, guest_context, join, log, ready, write
from tests.e2e.harness import Server
from tests.e2e.line import line_to
from tests.e2e.screens import NOBODY, Mode
from turnlog_examples.assistant.chart import bars

PHONE_LIGHT = Mode("phone", PHONE["width"], PHONE["height"], "light")
DESK_LIGHT = Mode("desk", DESK["width"], DESK["height"], "light")
PHONE_DARK = PHONE_LIGHT._replace(name="phone dark", scheme="dark")
DESK_DARK = DESK_LIGHT._replace(name="desk dark", scheme="dark")
TALK_MODES = (PHONE_LIGHT, PHONE_DARK, DESK_LIGHT, DESK_DARK)
LONG_WORD = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"


@dataclass
class TalkStage:
    """A server with the hotel, and a guest's browser with what its pages have reported."""

    server: Server
    browser: Browser
    context: BrowserContext
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context.on("weberror", lambda error: self.errors.append(str(error.error)))
        self.context.on(
            "console", lambda said: self.errors.append(said.text) if said.type == "error" else None
        )

    def session(self, title: str) -> str:
        return str(self.server.post("/api/sessions", {"title": title})[1]["session_id"])

    def join(self, title: str, name: str = "Ada") -> Page:
        return join(self.context, self.server, self.session(title), name)


class TalkScreen(NamedTuple):
    """A screen; `pictures` are its pictures in the docs, `noise` is what the browser reports by itself."""

    name: str
    open: Callable[[TalkStage], Page]
    pictures: tuple[Mode, ...] = ()
    noise: str = ""

    @property
    def files(self) -> dict[str, Mode]:
        return {f"{self.name}-{mode.name.replace(' ', '-')}.png": mode for mode in self.pictures}


def ask(page: Page, order: str, answer: str) -> None:
    write(page, order)
    expect(log(page)).to_contain_text(answer)


def empty(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    expect(page.get_by_text("No messages yet.")).to_be_visible()
    return page


def conversation(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    ask(page, "Good morning!", "I heard: Good morning!")
    session = page.url.rpartition("/")[2]
    stage.server.post("/api/send", {"session": session, "message": "Please make a plan for two days."})
    expect(log(page)).to_contain_text("I heard: Please make")
    ask(page, "mark it down", "bergen.ics")
    return page


def long_words(stage: TalkStage) -> Page:
    page = stage.join(LONG_WORD, LONG_WORD[:40])
    ask(page, f"{LONG_WORD} {'x' * 200}", "xxxx")
    return page


def form(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    ask(page, "form please", "All is arranged.")
    page.get_by_label("Persons").fill("some")
    page.get_by_role("button", name="Book").click()
    expect(page.get_by_text("Name is required")).to_be_visible()
    return page


def table(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    ask(page, "table please", "All is arranged.")
    return page


def approval(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    ask(page, "book a room", "Harbour Hotel")
    expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
    return page


def question(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    ask(page, "walk far", "ten kilometres")
    page.get_by_role("button", name="Yes").click()
    expect(log(page)).to_contain_text("Done: true.")
    ask(page, "room please", "Which room do you like?")
    expect(page.get_by_role("button", name="Garden")).to_be_visible()
    return page


def files(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    picked = page.locator("tl-attachments input")
    picture: FilePayload = {
        "name": "harbour.png",
        "mimeType": "image/png",
        "buffer": bars([2, 3, 9, 4, 7, 5], 24),
    }
    notes: FilePayload = {
        "name": "what we would like to see.txt",
        "mimeType": "text/plain",
        "buffer": b"The wharf.",
    }
    program: FilePayload = {"name": "tour.exe", "mimeType": "application/x-msdownload", "buffer": b"MZ"}
    picked.set_input_files([picture, notes])
    expect(page.locator("tl-attachments [data-state=ready]")).to_have_count(2)
    write(page, "Our pictures and wishes")
    expect(log(page).get_by_role("img", name="harbour.png")).to_be_visible()
    expect(log(page)).to_contain_text("I heard")
    picked.set_input_files([notes, picture, program])
    expect(page.locator("tl-attachments [data-state=ready]")).to_have_count(2)
    expect(page.get_by_text("tour.exe cannot be sent.")).to_be_visible()
    return page


def german(stage: TalkStage) -> Page:
    page = stage.join("Ein Wochenende in Bergen")
    page.goto(page.url + "?lang=de")
    ready(page)
    write(page, "book ein Zimmer")
    expect(page.get_by_role("button", name="Nicht erlauben")).to_be_visible()
    return page


def offline(stage: TalkStage) -> Page:
    session = stage.session("A weekend in Bergen")
    with line_to(stage.server.port) as line:
        page = join(stage.context, stage.server, session, url=line.url)
        ask(page, "hello", "I heard: hello")
    expect(page.get_by_text("No connection.")).to_be_visible()
    return page


def unsent(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    page.route("**/api/events", lambda route: route.fulfill(status=400, json={"error": "no"}))
    write(page, "Is there a ferry on Sunday?")
    expect(page.get_by_role("button", name="Discard")).to_be_visible()
    return page


def failed(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    ask(page, "fail now", "Something went wrong.")
    return page


def refused(stage: TalkStage) -> Page:
    page = stage.join("A weekend in Bergen")
    page.goto(f"{stage.server.url}/talk/{NOBODY}")
    expect(page.get_by_role("alert")).to_be_visible()
    return page


def closed(stage: TalkStage) -> Page:
    page = conversation(stage)
    session = page.url.rpartition("/")[2]
    assert stage.server.post("/api/sessions/close", {"session": session})[0] == 204
    page.reload()
    expect(page.get_by_text("Host closed this conversation.")).to_be_visible()
    expect(box(page)).to_have_count(0)
    expect(log(page)).to_contain_text("bergen.ics")
    return page


NETWORK_NOISE = "Failed to load resource"
TALK_SCREENS = (
    TalkScreen("talk-empty", empty),
    TalkScreen("talk", conversation, (DESK_LIGHT, PHONE_DARK)),
    TalkScreen("talk-long", long_words),
    TalkScreen("talk-form", form, (PHONE_LIGHT,)),
    TalkScreen("talk-table", table),
    TalkScreen("talk-approval", approval, (PHONE_LIGHT,)),
    TalkScreen("talk-question", question),
    TalkScreen("talk-files", files, (PHONE_LIGHT,)),
    TalkScreen("talk-german", german, (PHONE_LIGHT,)),
    TalkScreen("talk-offline", offline, (), NETWORK_NOISE),
    TalkScreen("talk-unsent", unsent, (), NETWORK_NOISE),
    TalkScreen("talk-failed", failed),
    TalkScreen("talk-refused", refused, (), NETWORK_NOISE),
    TalkScreen("talk-closed", closed),
)
TALK_PICTURES = {name: mode for screen in TALK_SCREENS for name, mode in screen.files.items()}


@contextmanager
def talk_stage(server: Server, browser: Browser) -> Iterator[TalkStage]:
    with guest_context(browser) as context:
        yield TalkStage(server, browser, context)
