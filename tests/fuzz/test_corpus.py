"""Every input that the fuzzer found and that was kept, through its target."""

from pathlib import Path

import pytest

from tests.fuzz.targets import MAX_BYTES, MAX_FILES, NAMES, corpus_of, load_target


@pytest.mark.parametrize("name", NAMES)
def test_kept_inputs_keep_the_laws_of_their_parser(name: str) -> None:
    target = load_target(name)
    files = corpus_of(name)
    assert files
    for file in files:
        try:
            target(file.read_bytes())
        except Exception as error:
            error.add_note(f"the input is {file}")
            raise


@pytest.mark.parametrize("name", NAMES)
def test_corpus_stays_small(name: str) -> None:
    files = corpus_of(name)
    assert len(files) <= MAX_FILES
    assert sum(file.stat().st_size for file in files) <= MAX_BYTES


def test_every_module_with_a_target_is_fuzzed() -> None:
    modules = {
        path.stem for path in Path(__file__).parent.glob("*.py") if "\ndef target(" in path.read_text()
    }
    assert modules == set(NAMES)
