"""By which code something is made: modules of an application, as files that change."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from turnlog.app.code_version import code_fingerprint
from turnlog.app.read_models import ReadModels


def count(state: int, *_: object) -> int:
    return state + 1


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    def load(name: str, source: str) -> ModuleType:
        file = tmp_path / f"{name.rpartition('.')[2]}.py"
        file.write_text(source)
        module = ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(source, str(file), "exec"), vars(module))
        return module

    return load


def test_it_is_the_same_for_the_same_code() -> None:
    assert (
        code_fingerprint(count, ReadModels)
        == code_fingerprint(ReadModels, count)
        == code_fingerprint(partial(count), ReadModels, dict)
    )


def test_another_reducer_is_other_code(modules: Any) -> None:
    first = code_fingerprint(modules("made", "def reduce(state, *_): return state").reduce)
    assert first != code_fingerprint(modules("made", "def reduce(state, *_): return 1").reduce)


@pytest.mark.parametrize("how", ["import {0}", "from {0} import rate", "from {0} import Rate as R"])
def test_so_is_what_it_takes_from_other_modules(modules: Any, how: str) -> None:
    rates = "def rate(): return {0}\nclass Rate: value = {0}"
    modules("made_rates", rates.format(1))
    user = how.format("made_rates") + "\ndef reduce(state, *_): return state"
    first = code_fingerprint(modules("made", user).reduce)
    assert first == code_fingerprint(modules("made", user).reduce)
    modules("made_rates", rates.format(2))
    assert first != code_fingerprint(modules("made", user).reduce)


def test_what_others_have_installed_is_not_part_of_it(modules: Any) -> None:
    user = "import made_rates\nfrom os import path\ndef reduce(state, *_): return state"
    installed = modules("made_rates", "rate = 1")
    installed.__file__ = "/usr/lib/site-packages/made_rates.py"
    first = code_fingerprint(modules("made", user).reduce)
    modules("made_rates", "rate = 2").__file__ = installed.__file__
    assert first == code_fingerprint(modules("made", user).reduce)


def test_an_application_that_is_installed_itself_is(modules: Any, tmp_path: Path) -> None:
    made = modules("made", "def reduce(state, *_): return state")
    file = tmp_path / "site-packages" / "made.py"
    file.parent.mkdir()
    file.write_text("def reduce(state, *_): return state")
    made.__file__ = str(file)
    first = code_fingerprint(made.reduce)
    assert first == code_fingerprint(made.reduce)
    file.write_text("def reduce(state, *_): return 1")
    assert first != code_fingerprint(made.reduce)
    file.unlink()
    assert code_fingerprint(made.reduce) != code_fingerprint(made.reduce)


def test_where_there_is_no_source_nothing_is_trusted(modules: Any) -> None:
    made = modules("made", "def reduce(state, *_): return state")
    made.__file__ = None
    assert code_fingerprint(made.reduce) != code_fingerprint(made.reduce)


def test_it_includes_the_package(monkeypatch: Any, tmp_path: Path) -> None:
    first = code_fingerprint(count, ReadModels)
    fold = sys.modules["turnlog.state.fold"]
    file = tmp_path / "fold.py"
    file.write_bytes(Path(str(fold.__file__)).read_bytes() + b"\n")
    monkeypatch.setattr(fold, "__file__", str(file))
    assert first != code_fingerprint(count, ReadModels)
