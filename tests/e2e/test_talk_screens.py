"""Every screen of the page of participants, on a phone and a desk, light and dark: axe-core finds nothing.

The pictures in docs/screens are made here: `make screens`.
"""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.e2e.axe import violations
from tests.e2e.harness import ROOT, Server, running
from tests.e2e.pictures import size, take
from tests.e2e.talk_screens import TALK_MODES, TALK_PICTURES, TALK_SCREENS, TalkScreen, talk_stage

FOLDER = ROOT / "docs" / "screens"
MOST_BYTES = 150_000
WIDER = "document.documentElement.scrollWidth - window.innerWidth"
# Until all elements are drawn, those of shadow roots too, and two frames have passed.
STILL = """async () => {
  const inside = ({ shadowRoot }) => (shadowRoot ? all(shadowRoot) : []);
  const all = (root) => [...root.querySelectorAll("*")].flatMap((one) => [one, ...inside(one)]);
  const frame = () => new Promise(requestAnimationFrame);
  do {
    await Promise.all(all(document).map((element) => element.updateComplete));
    await frame();
    await frame();
  } while (all(document).some((element) => element.isUpdatePending));
}"""
# What is wider than the page and cannot be scrolled to.
CUT = """() => {
  const root = document.querySelector("turnlog-chat").shadowRoot;
  const parts = root.querySelectorAll(".bubble, .sheet, .message, .composer, .header, .prose, button, p");
  const isCut = (part) => part.getBoundingClientRect().right > innerWidth + 1;
  return [...parts].filter(isCut).map((part) => part.outerHTML.slice(0, 80));
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("tests.e2e.guest_apps:app", tmp_path_factory.mktemp("log")) as server:
        yield server


@pytest.mark.parametrize("screen", TALK_SCREENS, ids=lambda screen: screen.name)
def test_nothing_is_wrong_with_a_screen_of_participants(
    screen: TalkScreen, chrome: Browser, server: Server
) -> None:
    folder = os.environ.get("TALK_SCREENS_FOLDER", "")  # to look at all of them
    wanted = {mode: name for name, mode in screen.files.items()} if os.environ.get("UPDATE_SCREENS") else {}
    with talk_stage(server, chrome) as stage:
        page = screen.open(stage)
        for mode in TALK_MODES:
            page.set_viewport_size({"width": mode.width, "height": mode.height})
            page.emulate_media(color_scheme="dark" if mode.scheme == "dark" else "light")
            page.mouse.move(0, 0)
            page.evaluate(STILL)
            if folder:
                page.screenshot(path=f"{folder}/{screen.name}-{mode.name}.png")
            assert violations(page) == [], mode.name
            assert page.evaluate(WIDER) <= 0, mode.name
            assert page.evaluate(CUT) == [], mode.name
            if name := wanted.get(mode):
                take(chrome, page, FOLDER / name)
        assert [error for error in stage.errors if not (screen.noise and screen.noise in error)] == []


def test_control_what_is_wrong_inside_the_element_is_found(chrome: Browser, server: Server) -> None:
    with talk_stage(server, chrome) as stage:
        page = TALK_SCREENS[0].open(stage)
        page.locator(".content").evaluate("(content) => content.append(document.createElement('input'))")
        assert [found.split(" | ")[0] for found in violations(page)] == ["label"]
        page.locator("p.blank").evaluate("(words) => { words.style.minWidth = '2000px'; }")
        assert len(page.evaluate(CUT)) == 1


@pytest.mark.parametrize("name", TALK_PICTURES)
def test_a_picture_of_participants_is_as_large_as_its_screen_and_light(name: str) -> None:
    path = FOLDER / name
    assert size(path) == (TALK_PICTURES[name].width, TALK_PICTURES[name].height)
    assert path.stat().st_size <= MOST_BYTES
