"""Every screen of the console, light, dark and on a phone: axe-core finds nothing, nothing is cut or fails.

The pictures in docs/screens are made here: `make screens`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.axe import violations
from tests.e2e.harness import ROOT
from tests.e2e.pictures import size, take
from tests.e2e.screen_talks import held, serving
from tests.e2e.screens import DARK, MODES, PHONE, SCREENS, Mode, Screen, Stage, opened
from tests.e2e.talk_screens import TALK_PICTURES

FOLDER = ROOT / "docs" / "screens"
COLOURS = ("color-contrast", "link-in-text-block")  # the rules of axe-core about colours
MOST_BYTES = 150_000
PICTURES = {name: mode for screen in SCREENS for name, (mode, _) in screen.pictures.items()}
# Until what is shown stays the same: parts of the page are loaded when they are first needed.
STILL = """async () => {
  for (let last = null, calm = 0; calm < 3; ) {
    await new Promise(requestAnimationFrame);
    const now = `${document.body.innerText} ${document.body.querySelectorAll("*").length}`;
    calm = now === last ? calm + 1 : 0;
    last = now;
  }
}"""
PHONE_WIDTHS = (PHONE.width, 390)
TOP = "(element) => element.getBoundingClientRect().top"
FONT_SIZE = "(element) => getComputedStyle(element).fontSize"
WIDER = "document.documentElement.scrollWidth - window.innerWidth"


@pytest.fixture(scope="module")
def stage(chrome: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with serving(tmp_path_factory.mktemp("log")) as server:
        yield Stage(server, chrome, held(server))


def views(screen: Screen, page: Page) -> Iterator[tuple[Mode, str]]:
    """The screen in every mode, on a phone each of its columns."""
    for mode in MODES:
        page.set_viewport_size({"width": mode.width, "height": mode.height})
        page.emulate_media(color_scheme="dark" if mode.scheme == "dark" else "light")
        for column in (screen.columns if mode is PHONE else ()) or ("",):
            if column:
                page.get_by_role("navigation", name="Screens").get_by_role("button", name=column).click()
            page.mouse.move(0, 0)  # what a mouse is over looks different
            page.evaluate(STILL)
            yield mode, column


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_nothing_is_wrong_with_a_screen(screen: Screen, stage: Stage) -> None:
    stage.errors.clear()
    wanted = (
        {look: name for name, look in screen.pictures.items()} if os.environ.get("UPDATE_SCREENS") else {}
    )
    with opened(stage, screen) as page:
        for mode, column in views(screen, page):
            # The dark screen is the light one in other colours.
            found = violations(page, COLOURS if mode is DARK else ())
            assert found == [], (mode.name, column)
            assert page.evaluate(WIDER) <= 0, (mode.name, column)
            if name := wanted.get((mode, column)):
                take(stage.browser, page, FOLDER / name)
    assert [error for error in stage.errors if not (screen.noise and screen.noise in error)] == []


def test_control_what_is_wrong_with_a_screen_is_found(stage: Stage) -> None:
    with opened(stage, SCREENS[1]) as page:
        page.evaluate("document.querySelector('main').append(document.createElement('input'))")
        assert [found.split(" | ")[0] for found in violations(page)] == ["label"]
        page.evaluate("document.querySelector('main').lastChild.style.width = '2000px'")
        page.set_viewport_size({"width": PHONE.width, "height": PHONE.height})
        assert page.evaluate(WIDER) > 0
        stage.errors.clear()
        page.evaluate("setTimeout(() => { throw new Error('on purpose'); })")
        page.evaluate("console.error('said')")
        assert [error.splitlines()[0] for error in stage.errors] == ["on purpose", "said"]


def test_control_dark_letters_on_a_dark_screen_are_found(stage: Stage) -> None:
    with opened(stage, SCREENS[1]) as page:
        page.emulate_media(color_scheme="dark")
        page.evaluate("document.querySelector('main').append('barely legible')")
        page.evaluate("document.querySelector('main').style.color = '#333'")
        assert {found.split(" | ")[0] for found in violations(page, COLOURS)} == {"color-contrast"}


def test_on_a_phone_an_event_and_its_words_lead_to_each_other(stage: Stage) -> None:
    page = stage.at("ends", "usage")
    page.set_viewport_size({"width": PHONE.width, "height": PHONE.height})
    said = page.get_by_role("log").get_by_text("Planner was stopped")
    expect(said).to_be_in_viewport()
    page.get_by_role("navigation", name="Screens").get_by_role("button", name="Inspect").click()
    expect(page.get_by_role("tab", name="Usage")).to_be_in_viewport(ratio=0.9)
    page.get_by_role("navigation", name="Screens").get_by_role("button", name="Chat").click()
    page.get_by_role("log").locator("[data-kind=end] .seq").last.click()
    expect(page.get_by_role("heading", name="agent.end")).to_be_in_viewport()
    expect(said).to_be_hidden()
    page.get_by_role("button", name="Show in chat").click()
    expect(said).to_be_in_viewport()
    page.close()


@pytest.mark.parametrize("talk", ["briefing", "team", "loan"])
def test_on_a_phone_send_is_beside_stop(talk: str, stage: Stage) -> None:
    page = stage.at(talk, "usage")
    form = page.locator("tl-composer")
    for width in PHONE_WIDTHS:
        page.set_viewport_size({"width": width, "height": PHONE.height})
        tops = [form.get_by_role("button", name=name).evaluate(TOP) for name in ("Stop", "Send")]
        assert tops[0] == tops[1], width
    page.close()


def test_on_a_phone_the_dialogs_of_a_session_have_headings_of_one_size(stage: Stage) -> None:
    page = stage.at("question", "agents")
    page.set_viewport_size({"width": PHONE.width, "height": PHONE.height})
    sizes = set()
    for button, title in (("Share", "Members"), ("Session", "Session")):
        page.get_by_role("banner").get_by_role("button", name=button, exact=True).click()
        dialog = page.get_by_role("dialog", name=title)
        sizes.add(dialog.get_by_role("heading", level=2).evaluate(FONT_SIZE))
        dialog.get_by_role("button", name="Close").first.click()
    assert len(sizes) == 1
    page.close()


def test_every_screen_has_its_pictures_in_the_docs() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PICTURES) | set(TALK_PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_large_as_its_screen_and_light(name: str) -> None:
    path = FOLDER / name
    assert size(path) == (PICTURES[name].width, PICTURES[name].height)
    assert path.stat().st_size <= MOST_BYTES


def test_control_a_file_that_is_no_picture_is_told(tmp_path: Path) -> None:
    (path := tmp_path / "page.png").write_text("<html>")
    with pytest.raises(AssertionError, match="no PNG"):
        size(path)
