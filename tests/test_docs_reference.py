"""Generated pages are up to date, and the searches that the architecture page names find something."""

import re
import shlex
import subprocess

from tests.generate_reference import API, ARCHITECTURE, ROOT, render_api, render_architecture
from tests.support.tables import for_each_row

SEARCHES = re.findall(r"^\| .+\? \| `(git grep .+)` \|$", ARCHITECTURE.read_text(), re.MULTILINE)


def test_api_reference_is_up_to_date() -> None:
    assert API.read_text() == render_api(), "run `make docs`"


def test_list_of_modules_is_up_to_date() -> None:
    text = ARCHITECTURE.read_text()
    assert text == render_architecture(text), "run `make docs`"


def test_architecture_page_answers_ten_questions() -> None:
    assert len(SEARCHES) == 10


@for_each_row("search", SEARCHES, ids=str)
def test_search_finds_the_answer_in_few_lines(search: str) -> None:
    # Outside a git checkout `git grep` needs --no-index; inside one it is the same search.
    command = [*shlex.split(search)[:2], "--no-index", *shlex.split(search)[2:]]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 1 <= len(answer.stdout.splitlines()) <= 25, answer.stdout
