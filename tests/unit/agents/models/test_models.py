"""Models by name, and what they are told."""

import asyncio
from importlib import util
from pathlib import Path

import pytest

from turnlog.agents.models import AnthropicModel, ModelError, Request, Scripted, make_model
from turnlog.errors import CallerError, NotFound, TurnlogError


def test_a_model_is_taken_as_it_is() -> None:
    model = Scripted(lambda messages: [])
    assert make_model(model) is model


def test_a_name_becomes_a_model(tmp_path: Path) -> None:
    (tmp_path / "demo.json").write_text('[{"say": ["Hello."]}]')
    scripted = make_model(f"scripted:{tmp_path}/demo.json")
    assert isinstance(scripted, Scripted)
    assert scripted.name == "scripted:demo"
    real = make_model("anthropic: claude-haiku-4-5 ")
    assert isinstance(real, AnthropicModel)
    assert real.name == "claude-haiku-4-5"


@pytest.mark.parametrize("spec", ["", "claude-haiku-4-5", "openai:gpt", "anthropic:", "scripted: ", ":x"])
def test_another_name_is_refused_with_what_is_expected(spec: str) -> None:
    with pytest.raises(
        CallerError, match=r"expected a model like anthropic:\.\.\. or scripted:\.\.\., not '"
    ):
        make_model(spec)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.agents.models.anthropic.find_spec", lambda name: None)
    assert util.find_spec("anthropic")
    with pytest.raises(CallerError, match=r"pip install 'turnlog\[anthropic\]'"):
        make_model("anthropic:claude-haiku-4-5")


def test_a_request_without_a_log_has_no_blobs() -> None:
    with pytest.raises(NotFound):
        asyncio.run(blob(Request("", [])))


async def blob(request: Request) -> object:
    return await request.read_blob("ab12")


def test_a_fault_says_what_and_whether_to_ask_again() -> None:
    fault = ModelError("overloaded_error", "Busy.", retriable=True, retry_after_s=2.0)
    assert isinstance(fault, TurnlogError)
    assert (str(fault), fault.code, fault.message) == ("overloaded_error: Busy.", "overloaded_error", "Busy.")
    assert (fault.retriable, fault.retry_after_s) == (True, 2.0)
    assert ModelError("", "y\ud800").code == ModelError("x" * 129, "y").code == "model_failed"
    assert ModelError("x", "y\ud800").message == "y?"
    assert (ModelError("x", "y").retriable, ModelError("x", "y").retry_after_s) == (False, None)
