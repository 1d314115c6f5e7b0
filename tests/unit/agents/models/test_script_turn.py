"""What a script reads from a conversation, and the tag that it emits."""

import asyncio
from typing import ClassVar

from turnlog import Agent, App, Payload, Vocabulary
from turnlog.agents import Emit, Scripted, ScriptResult, ScriptTurn
from turnlog.agents.models.scripted import format_tag
from turnlog.parse import strip_event_tags
from turnlog.state import Message


class NoteQuote(Payload, frozen=True, kw_only=True):
    """The model noted what a person said."""

    ORIGINS: ClassVar = frozenset({"model"})
    EXAMPLE: ClassVar = {"text": "hello"}

    text: str


def user(*parts: dict[str, object]) -> Message:
    return Message("user", list(parts))


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


CALLS = Message(
    "assistant",
    [
        {"type": "tool_use", "id": "c1", "name": "price", "input": {}},
        {"type": "tool_use", "id": "c2", "name": "photo", "input": {}},
    ],
)
RESULTS = user(
    {"type": "tool_result", "tool_use_id": "c1", "content": "3", "is_error": False},
    {
        "type": "tool_result",
        "tool_use_id": "c2",
        "content": [{"type": "image"}, text("a cup")],
        "is_error": True,
    },
)


def test_text_is_the_last_text_of_the_user_and_results_come_after_it() -> None:
    turn = ScriptTurn([user(text("tea")), CALLS, RESULTS])
    assert turn.text == "tea"
    assert turn.results == [ScriptResult("price", "3", True), ScriptResult("photo", "a cup", False)]
    assert ScriptTurn([*turn, user(text("coffee"))]).results == []
    assert ScriptTurn().text == ""


def test_action_is_what_the_user_did_and_text_that_looks_like_it_is_not() -> None:
    done = '[The user acted: {"action":{"kind":"button.click","button_id":"b"},"view_id":"v"}]'
    turn = ScriptTurn([user(text(done))])
    assert turn.action == {"action": {"kind": "button.click", "button_id": "b"}, "view_id": "v"}
    for words in ("tea", "[The user acted: {]", "[The user acted: {1}]"):
        assert ScriptTurn([user(text(words))]).action is None


def test_emitted_event_reaches_the_state_and_not_the_text() -> None:
    event = NoteQuote(text='it\'s <b>"done"</b>')
    vocabulary = Vocabulary("notes", [NoteQuote])
    stripped = strip_event_tags("Noted." + format_tag(event), vocabulary)
    assert stripped.display == "Noted."
    assert [found.payload for found in stripped.events] == [event]


def test_script_of_an_agent_gets_a_turn() -> None:
    def script(turn: ScriptTurn) -> list[str]:
        return [f"You said {turn.text}."]

    app = App("echo", Agent("Echo", "Repeat.", Scripted(script)), vocabulary=Vocabulary("echo", [NoteQuote]))
    assert asyncio.run(app.agent.ask("tea")) == "You said tea."
    assert Emit(NoteQuote(text="x")).event == NoteQuote(text="x")
