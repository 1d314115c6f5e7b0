"""What `import turnlog` offers, and what it only promises."""

import pytest

import turnlog


def test_lazy_names_are_offered() -> None:
    assert turnlog.LAZY == {
        "open_log": "turnlog.log",
        "Agent": "turnlog.agents",
        "tool": "turnlog.agents",
        "App": "turnlog.app",
        "adapters": "turnlog.adapters",
        "connect": "turnlog.connection",
        "connect_sync": "turnlog.connection",
        "record": "turnlog.recording",
    }
    assert set(turnlog.LAZY) < set(turnlog.__all__)


def test_the_other_names_are_there() -> None:
    assert all(name in vars(turnlog) for name in set(turnlog.__all__) - set(turnlog.LAZY))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'turnlog' has no attribute 'nothing'"):
        turnlog.nothing  # noqa: B018


def test_a_lazy_name_is_imported_from_where_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(turnlog.LAZY, "MAX_JSON_DEPTH", "turnlog.events.strict_json")
    assert turnlog.MAX_JSON_DEPTH == 32


def test_a_lazy_module_is_itself() -> None:
    assert turnlog.adapters.__name__ == "turnlog.adapters"


def test_event_mints_an_id_unless_one_is_given() -> None:
    event = turnlog.event("ui.message", {"text": "hi"}, id="evt_mine")
    assert (event.id, event.type, event.origin, event.body) == (
        "evt_mine",
        "ui.message",
        "app",
        b'{"text":"hi"}',
    )
    first, second = (turnlog.event("ui.message", {"text": "hi"}) for _ in range(2))
    assert first.id.startswith("evt_")
    assert first.id != second.id
