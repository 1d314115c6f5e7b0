"""What one principal may ask for: requests with a given clock, streams, and that others have their own."""

import pytest

from turnlog.server import limits
from turnlog.server.limits import Budgets, Limits

SMALL = Limits(requests_per_s=2.0, burst=3, streams=2)


def spent(budgets: Budgets, now_s: float, name: str = "ada") -> int:
    """How many requests there are now."""
    count = 0
    while not budgets.request(name, now_s):
        count += 1
    return count


def test_a_burst_is_granted_and_then_there_is_a_wait() -> None:
    budgets = Budgets(SMALL)
    assert [budgets.request("ada", 10.0) for _ in range(5)] == [0, 0, 0, 0.5, 0.5]


def test_time_gives_requests_back_up_to_the_burst() -> None:
    budgets = Budgets(SMALL)
    assert spent(budgets, 10.0) == 3
    assert spent(budgets, 10.5) == 1
    assert spent(budgets, 11.75) == 2
    assert spent(budgets, 1000.0) == 3


def test_the_wait_that_is_told_is_enough() -> None:
    budgets = Budgets(Limits(requests_per_s=0.3, burst=1))
    now_s = 5.0
    for _ in range(5):
        while wait_s := budgets.request("ada", now_s):
            assert 0 < wait_s <= 1 / 0.3
            assert budgets.request("ada", now_s + wait_s * 0.9), "less is not enough"
            now_s += wait_s + 1e-9
        assert budgets.request("ada", now_s)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    budgets = Budgets(SMALL)
    assert spent(budgets, 10.0) == 3
    assert spent(budgets, 1.0) == 0


def test_principals_do_not_share() -> None:
    budgets = Budgets(SMALL)
    assert (spent(budgets, 10.0, "ada"), spent(budgets, 10.0, "bob")) == (3, 3)


def test_the_longest_silent_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRINCIPALS", 2)
    budgets = Budgets(SMALL)
    assert (spent(budgets, 10.0, "ada"), spent(budgets, 10.0, "bob")) == (3, 3)
    assert budgets.request("ada", 10.0) > 0
    assert spent(budgets, 10.0, "eve") == 3
    assert budgets.request("ada", 10.0) > 0, "it asked later than bob"
    assert spent(budgets, 10.0, "bob") == 3


def test_streams_are_counted_and_given_back() -> None:
    budgets = Budgets(SMALL)
    assert [budgets.open_stream("ada") for _ in range(3)] == [True, True, False]
    assert budgets.open_stream("bob")
    budgets.close_stream("ada")
    assert [budgets.open_stream("ada") for _ in range(2)] == [True, False]


def test_who_has_no_stream_leaves_no_trace() -> None:
    budgets = Budgets(SMALL)
    for _ in range(2):
        budgets.open_stream("ada")
    for _ in range(2):
        budgets.close_stream("ada")
    with pytest.raises(KeyError):
        budgets.close_stream("ada")
