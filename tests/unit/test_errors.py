"""The tree of errors: who is at fault, where, and never too much of the input."""

import pytest

from turnlog import errors

TREE = {
    errors.CallerError: errors.TurnlogError,
    errors.PeerError: errors.TurnlogError,
    errors.StoreError: errors.TurnlogError,
    errors.InvalidEvent: errors.CallerError,
    errors.UnknownType: errors.CallerError,
    errors.Forbidden: errors.CallerError,
    errors.NotFound: errors.CallerError,
    errors.Conflict: errors.CallerError,
    errors.LimitReached: errors.CallerError,
    errors.Fenced: errors.CallerError,
    errors.SessionClosed: errors.CallerError,
    errors.RuleError: errors.CallerError,
    errors.RulesDidNotConverge: errors.RuleError,
    errors.BadInput: errors.PeerError,
    errors.SessionDamaged: errors.StoreError,
    errors.StoreAway: errors.StoreError,
    errors.Unavailable: errors.StoreError,
}


def test_the_tree_is_the_one_that_is_drawn() -> None:
    declared = {value for value in vars(errors).values() if isinstance(value, type)}
    assert declared == {errors.TurnlogError, *TREE}
    assert {child: child.__base__ for child in TREE} == TREE
    assert {error.__name__ for error in declared} <= set((errors.__doc__ or "").split())


@pytest.mark.parametrize("error", [errors.InvalidEvent, errors.BadInput])
def test_an_error_about_json_carries_its_path(
    error: type[errors.InvalidEvent] | type[errors.BadInput],
) -> None:
    assert str(error("expected int", "$.a[0]")) == "expected int (at $.a[0])"
    assert error("expected int", "$.a[0]").path == "$.a[0]"
    assert error("expected int").path == "$"


def test_a_conflict_says_where_the_log_is() -> None:
    conflict = errors.Conflict("expected the last seq to be 3", last=5)
    assert str(conflict) == "expected the last seq to be 3; the last seq is 5"
    assert conflict.last == 5


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("short", "'short'"),
        (b"bytes", "b'bytes'"),
        ("two\nlines", r"'two\nlines'"),
        ("a" * 78, "'" + "a" * 78 + "'"),
        ("a" * 79, "'" + "a" * 78 + "…"),
        ("a" * 100_000, "'" + "a" * 78 + "…"),
    ],
)
def test_quoted_input_is_one_line_of_at_most_80_characters(value: object, shown: str) -> None:
    assert errors.quote(value) == shown
    assert len(errors.quote(value)) <= errors.MAX_QUOTE_CHARS


def test_damage_without_a_place_names_none() -> None:
    assert str(errors.SessionDamaged("sess_1", 3, 5, "lost")) == "sess_1 is damaged at seq 3 to 5: lost"
    assert str(errors.SessionDamaged("sess_1", -1, -1, "its record")) == "sess_1 is damaged: its record"
