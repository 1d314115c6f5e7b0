"""The helpers that make one item of a table: every row runs, and every failure is named."""

import inspect

import pytest

from tests.support.tables import check_laws, for_each_row


def notes(failure: pytest.ExceptionInfo[ExceptionGroup[Exception]]) -> list[str]:
    return [note for each in failure.value.exceptions for note in each.__notes__]


def test_for_each_row_runs_every_row_and_names_those_that_fail() -> None:
    runs = []

    @for_each_row("left, right", [(1, 1), (1, 2), pytest.param(2, 3, id="two and three")])
    def compare(left: int, right: int) -> None:
        runs.append((left, right))
        assert left == right

    with pytest.raises(ExceptionGroup) as failure:
        compare()
    assert runs == [(1, 1), (1, 2), (2, 3)]
    assert notes(failure) == ["failed for: row 1: (1, 2)", "failed for: two and three"]


def test_for_each_row_leaves_the_fixtures_to_pytest() -> None:
    @for_each_row("letter", "ab", ids=["first", "second"])
    @for_each_row("digit", [1, 2])
    def write(letter: str, digit: int, tmp_path: list[str]) -> None:
        tmp_path.append(f"{letter}{digit}")

    written: list[str] = []
    write(tmp_path=written)
    assert list(inspect.signature(write).parameters) == ["tmp_path"]
    assert written == ["a1", "a2", "b1", "b2"]


def test_for_each_row_refuses_an_empty_table() -> None:
    with pytest.raises(ValueError, match="without rows"):
        for_each_row("row", [])


def test_for_each_row_refuses_a_coroutine_function() -> None:
    async def check(row: int) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="check is async"):
        for_each_row("row", [1])(check)  # type: ignore[arg-type]


def test_check_laws_names_every_law_that_fails() -> None:
    def is_even(number: int) -> None:
        assert number % 2 == 0

    def is_small(number: int) -> None:
        assert number < 10

    def is_positive(number: int) -> None:
        assert number > 0

    check_laws([is_even, is_small], 2)
    with pytest.raises(ExceptionGroup) as failure:
        check_laws([is_even, is_small, is_positive], 11)
    assert notes(failure) == ["failed for: is_even", "failed for: is_small"]
