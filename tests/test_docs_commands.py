"""Every command that a document names exists, with its options; and every route."""

import re
from itertools import zip_longest
from pathlib import Path

import pytest
from starlette.routing import Route

from tests.support.docs_blocks import DOCS, ROOT, blocks, codes
from tests.support.docs_names import command_faults
from tests.support.tables import for_each_row
from turnlog.server import create_app
from turnlog_examples.tour import app

ROUTE = re.compile(r"(?:(GET|POST) )?(/(?:api|agent)/[a-z_{}/-]*[a-z}])")  # up to what varies


@for_each_row("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_exist(path: Path) -> None:
    assert command_faults(path) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("`turnlog dance`", "page.md: no command turnlog dance"),
        ("`turnlog tail --loud`", "page.md: turnlog tail: No such option '--loud'. Did you mean '--log'?"),
        ("`turnlog verify twice`", "page.md: turnlog verify takes no twice"),
        ("`turnlog parse --source [tags|tea]`", "page.md: no tea for source"),
        ("a\n`turnlog export S |\nturnlog parse --source tea`", "page.md: no tea for source"),
        ("`make tea`", "page.md: no target tea"),
        ("`.venv/bin/python -m turnlog_examples.tea`", "page.md: no module turnlog_examples.tea"),
        ("```sh run\nexport A=1\nA=$(turnlog dance) true\n```", "page.md:2: no command turnlog dance"),
        (
            "```sh\nX=1 turnlog serve a:b \\\n  --loud\n```",
            "page.md:2: turnlog serve: No such option '--loud'. Did you mean '--log'?",
        ),
        (
            "```sh\nturnlog tail --after\n```",
            "page.md:2: turnlog tail: Option '--after' requires an argument.",
        ),
    ],
)
def test_control_a_command_that_does_not_exist_is_reported(text: str, fault: str, tmp_path: Path) -> None:
    (page := tmp_path / "page.md").write_text(f"# Here\n{text}\n")
    assert command_faults(page) == [fault]


def test_commands_as_sentences_and_shells_write_them(tmp_path: Path) -> None:
    (page := tmp_path / "page.md").write_text(
        "`turnlog` `turnlog --version` `turnlog schema [TYPE]` `turnlog convert --to DIALECT`\n"
        "`turnlog tail --type`\n"
        "`turnlog parse --source tags|anthropic` `it's turnlog dance` `make test`\n"
        "```sh\n# turnlog dance\ntrue && turnlog tail -f | head\n```\n"
    )
    assert command_faults(page) == []


def known_routes() -> list[tuple[str, list[str]]]:
    """Method and path of each route."""
    routes = [route for route in create_app(app, "memory:").routes if isinstance(route, Route)]
    return [(method, route.path.split("/")) for route in routes for method in route.methods or ()]


def leads(route: list[str], named: list[str]) -> bool:
    """Whether a route is the one that is named, or goes on from there with what varies."""
    pairs = zip_longest(route, named)
    return all(part == name or (part or "").startswith("{") for part, name in pairs)


def route_faults(path: Path) -> list[str]:
    """Routes that are named and not there."""
    known = known_routes()
    texts = [*codes(path), *(block.text for block in blocks(path) if block.language == "sh")]
    return [
        f"no route {method} {name}"
        for text in texts
        for method, name in ROUTE.findall(text)
        if not any(leads(route, name.split("/")) for verb, route in known if method in ("", verb))
    ]


@for_each_row("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_routes_exist(path: Path) -> None:
    assert route_faults(path) == []


def test_control_a_route_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    (page := tmp_path / "page.md").write_text(
        "`POST /api/state` `/api/tea` `GET /api/events` `/api/chat/{role}`\n"
    )
    assert route_faults(page) == ["no route POST /api/state", "no route  /api/tea"]
