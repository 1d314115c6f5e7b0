"""`turnlog demo shop` in real Chromium: an agent that speaks AG-UI, from a message to the result."""

import re

from playwright.sync_api import Browser, FilePayload, expect

from tests.e2e.browser import watched
from tests.e2e.console import chat, context_of, live, say
from tests.e2e.test_demo import running
from turnlog_examples import shop

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c"
    "6360f8cf50000003860180f93cbb620000000049454e44ae426082"
)


def test_agent_that_is_brought_along_asks_a_sub_agent_and_waits_for_an_approval(chrome: Browser) -> None:
    with running("shop", "--no-browser") as demo, context_of(chrome) as context:
        page = context.new_page()
        errors = watched(page)
        page.goto(demo.link)
        live(page)
        expect(page.get_by_role("tabpanel")).to_contain_text("An agent that exists already, in one file")

        picture: FilePayload = {"name": "bill.png", "mimeType": "image/png", "buffer": PIXEL}
        page.locator("tl-attachments input").set_input_files([picture])
        expect(page.get_by_label("Files to send").get_by_role("listitem")).to_have_attribute(
            "data-state", "ready"
        )
        say(page, shop.TRIES[0])
        expect(page.get_by_text("1 question needs your answer")).to_be_visible()
        expect(chat(page)).to_contain_text("Ada ordered it.")
        expect(chat(page).get_by_role("img", name="bill.png")).to_have_count(1)

        page.reload()
        live(page)
        page.get_by_role("button", name="Approve", exact=True).click()
        expect(chat(page)).to_contain_text("The order is handled.")
        page.get_by_role("tab", name="Agents").click()
        expect(page.get_by_role("tabpanel")).to_contain_text(re.compile("Clerk.*Researcher", re.S))
        assert errors == []
