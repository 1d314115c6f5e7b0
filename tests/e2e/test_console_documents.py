"""The panel of documents: files on top, their contents as text, groups of documents that are folded."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

import turnlog
from tests.e2e.console import context_of, opened
from tests.e2e.harness import Server, running
from turnlog.events.process import SessionMember
from turnlog.events.tool import ToolCall, ToolResult
from turnlog.events.ui import UiMessage
from turnlog.team.events import ArtifactWrite

SESSION = "sess_files"
PAGE = "<h1>Ships</h1><script>document.title = 'run'</script>"
EVENTS = (
    turnlog.event(SessionMember(principal="local", roles=("owner",)), origin="system"),
    turnlog.event(UiMessage(text="Write about ships"), origin="ui"),
    turnlog.event(
        ToolCall(call_id="c", tool="Write", args={"file_path": "/o/memory/ships.html", "content": PAGE}),
        origin="model",
    ),
    turnlog.event(ToolResult(call_id="c", tool="Write", ok=True, result="Written"), origin="tool"),
    turnlog.event(
        ArtifactWrite(filename="ships.html", path="memory/ships.html", is_new=True, size_bytes=len(PAGE)),
        origin="tool",
    ),
)


async def write_log(folder: Path) -> None:
    log = await turnlog.open_log(f"sqlite:///{folder}/log.db")
    await log.create("desk", SESSION)
    await log.append(SESSION, EVENTS)
    await log.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("log")
    with ThreadPoolExecutor(1) as pool:  # Playwright has a loop in this thread
        pool.submit(asyncio.run, write_log(folder)).result()
    with running("tests.e2e.console_apps:app", folder) as server:
        yield server


@pytest.fixture(scope="module")
def context(chrome: Browser, server: Server) -> Iterator[BrowserContext]:
    with context_of(chrome) as context:
        opened(context, server.link).close()
        yield context


@pytest.fixture
def page(context: BrowserContext, server: Server) -> Iterator[Page]:
    page = opened(context, f"{server.url}/?session={SESSION}&panel=documents")
    yield page
    page.close()


def test_documents_show_a_page_that_a_model_wrote_as_text(page: Page) -> None:
    page.locator("tl-files").get_by_role("button", name="ships.html").click()
    expect(page.get_by_label("Contents of ships.html")).to_have_text(PAGE)
    expect(page.locator("tl-files h1")).to_have_count(0)


def test_documents_give_a_file_as_a_download(page: Page) -> None:
    page.locator("tl-files").get_by_role("button", name="ships.html").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "ships.html"
    assert Path(download.value.path()).read_text() == PAGE


def test_documents_fold_the_messages_until_a_person_searches(page: Page) -> None:
    message = page.get_by_role("button", name="Write about ships")
    expect(page.get_by_text("Messages")).to_be_visible()
    expect(message).to_be_hidden()
    page.get_by_label("Find").fill("ships")
    expect(message).to_be_visible()


def test_documents_have_files_and_export_above_what_is_stored(page: Page) -> None:
    expect(page.get_by_role("heading", name="Stored documents")).to_be_visible()
    titles = page.get_by_role("tabpanel").get_by_role("heading", level=2).all_text_contents()
    assert titles == ["Files", "Export", "Stored documents"]
