"""Texts of shapes that a markdown parser takes a square of steps for, in the console.

`web/tests/bounded-marked.test.mjs` counts the steps; here a page shows such texts, and answers afterwards.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import Browser, expect

import turnlog
from tests.e2e.console import LIMIT_MS, chat, context_of, opened, say
from tests.e2e.harness import running
from turnlog.events.assistant import AssistantMessage
from turnlog.events.process import SessionMember

CHARS = 100_000  # minutes of work for a parser without bounds
SHAPES = ("_a*", "*_*_a", "a", "a.", "[a", "- a\n  ")
# The lengths of the texts, without what only parts them.
LENGTHS = "texts => texts.map(text => text.textContent.replaceAll(/[^a-z]/g, '').length)"


async def write_log(folder: Path) -> str:
    log = await turnlog.open_log(f"sqlite:///{folder}/log.db")
    session = await log.create("desk")
    said = [AssistantMessage(text=shape * (CHARS // len(shape))) for shape in SHAPES]
    events = [
        turnlog.event(SessionMember(principal="local", roles=("owner",)), origin="system"),
        *(turnlog.event(message, origin="model") for message in said),
    ]
    await log.append(session, events)
    await log.close()
    return session


def test_console_with_texts_of_unbalanced_delimiters_shows_them_and_answers(
    chrome: Browser, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:  # Playwright has a loop in this thread
        session = pool.submit(asyncio.run, write_log(tmp_path)).result()
    with running("tests.e2e.console_apps:book", tmp_path) as server, context_of(chrome) as context:
        opened(context, server.link).close()
        page = opened(context, f"{server.url}/?session={session}")
        expect(page.locator("tl-text")).to_have_count(len(SHAPES), timeout=LIMIT_MS)
        letters = [CHARS // len(shape) * shape.count("a") for shape in SHAPES]
        page.wait_for_function(
            f"letters => String(({LENGTHS})([...document.querySelectorAll('tl-text .prose')])) === letters",
            arg=",".join(map(str, letters)),
        )
        say(page, "Go on")
        expect(chat(page)).to_contain_text("Go on", timeout=LIMIT_MS)
