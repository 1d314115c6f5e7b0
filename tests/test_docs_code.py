"""Every block of code in the documents is run, or parsed where it cannot be; `docs_run` says how."""

from pathlib import Path

import pytest

from tests.conftest import program
from tests.support.docs_blocks import DOCS, ROOT, blocks
from tests.support.docs_run import KINDS, Fault, Room
from tests.support.tables import for_each_row

HOW_TO_LINES = 120
BROKEN = {
    "a script that raises": "```python\nraise SystemExit(3)\n```",
    "a name that is not there": "```python\nfrom turnlog import nothing_of_this_name\n```",
    "a warning": "```python\nimport warnings\nwarnings.warn('old', DeprecationWarning)\n```",
    "a file that a later block misses": "```python title=one.py\nx = 1\n```\n```python\nimport two\n```",
    "a test that fails": "```python title=test_no.py\ndef test_no() -> None:\n    assert 1 == 2\n```",
    "javascript that does not parse": "```js\nconst = 1;\n```",
    "an import that does not resolve": '```js\nimport { a } from "@turnlog/client/nowhere";\n```',
    "a command that fails": "```sh run\nfalse\necho done\n```",
    "a pipe whose first part fails": "```sh run\nfalse | cat\n```",
    "a text that never comes": "```sh until=never\necho always\n```",
    "a server that does not start": "```sh server\nturnlog serve nothing_here:app\n```",
    "a shell without a word": "```sh\ntrue\n```",
    "output that is another": "```sh run\necho one\n```\n```text output\ntwo\n```",
    "json with a comma too many": '```json\n{"a": 1,}\n```',
    "toml without a value": "```toml\na =\n```",
    "a language that nothing checks": "```cobol\nSTOP RUN.\n```",
}


def room(folder: Path) -> Room:
    return Room(folder, program)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_code_of_the_document_does_what_it_says(path: Path, tmp_path: Path) -> None:
    room(tmp_path).run(path)


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_control_a_broken_block_is_reported(broken: str, tmp_path: Path) -> None:
    (document := tmp_path / "broken.md").write_text(broken)
    with pytest.raises(Fault, match=r"broken\.md:\d+: "):
        room(tmp_path).run(document)


def test_control_a_server_that_nginx_does_not_take_is_reported(nginx: str, tmp_path: Path) -> None:
    (document := tmp_path / "broken.md").write_text("```nginx\nserver { proxy_bufering off; }\n```")
    with pytest.raises(Fault, match="proxy_bufering"):
        room(tmp_path).run(document)


def test_blocks_share_a_folder_variables_and_a_server(tmp_path: Path) -> None:
    (document := tmp_path / "whole.md").write_text(
        "```sh run\nexport WORD=Oslo\n```\n```sh server\nturnlog serve turnlog_examples.tour:app\n```\n"
        "```sh run\ncurl -sf http://127.0.0.1:8765/healthz\necho $WORD\n```\n"
        '```text output\n{"status":...}Oslo\n```\n'
    )
    room(tmp_path).run(document)


def test_every_language_that_is_checked_is_used_or_a_drawing() -> None:
    used = {block.language for path in DOCS for block in blocks(path)}
    assert used == set(KINDS), used ^ set(KINDS)


@for_each_row("path", sorted(ROOT.glob("docs/howto/*.md")), ids=lambda path: path.name)
def test_a_how_to_is_short(path: Path) -> None:
    assert path.read_text().count("\n") <= HOW_TO_LINES
