"""Scripts in JSON: what `scripted:<path>` plays. A file is read and checked once, when the model is made.

    {"pace_s": 0.03, "first_s": 0.4, "steps": [
      {"when": {"text": "weather"},   "say": ["Let me see.", {"tool": "weather", "args": {"city": "Oslo"}}]},
      {"when": {"result": "weather"}, "say": ["It is {result} there."]},
      {"when": {"matches": "trip to (?P<city>\\\\w+)"}, "say": [{"think": "A trip."}, "To {city}!"]},
      {"say": ["I only know the weather and trips."]}]}

A bare list of steps will do too. Each time the model is asked, the first step that fits is said:

    text      these words are in what the user said last, in upper or lower case
    matches   this regular expression is found there; its named groups may be used in `say`
    result    what came last is the result of this tool
    step      so many messages of the model came since the user's words, from 0
    no `when` always fits

After a result only steps with `result` or `step`, or without `when`, fit: else a step would answer itself.
In texts and arguments `{text}`, `{result}` and the groups' names in braces stand for what they name. The
parts of `say`, beside texts:

    {"tool": name, "args": {}}                     {"think": text, "signature": text}
    {"cite": {"type": ..., "cited_text": ...}}     {"provider": tool, "args": {}, "result": any, "kind": name}
    {"files": [{"file_id": ..., "filename": ..., "storage_location": ...}]}
    {"fail": code, "retriable": true, "message": text, "retry_after_s": 1, "times": 1}
    {"stop": reason}                               {"spend": {"input_tokens": 1, "output_tokens": 2}}

`fail` with `times` fails so often for each state of the conversation, and then no more: a retry succeeds.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from turnlog.agents.models.model import ModelError
from turnlog.agents.models.scripted import (
    Cite,
    EndMessage,
    Fail,
    Files,
    ProviderCall,
    Scripted,
    ScriptPart,
    Thinking,
    ToolUse,
    UsageReport,
)
from turnlog.errors import CallerError, quote
from turnlog.events import Citation, File, Usage
from turnlog.events.strict_json import split_validation_error
from turnlog.parse import reply as replies
from turnlog.state.history import Message


class ScriptStruct(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a file may say, and nothing else."""


class SayTool(ScriptStruct, frozen=True, kw_only=True):
    tool: str
    args: dict[str, Any] = {}


class SayThinking(ScriptStruct, frozen=True, kw_only=True):
    think: str
    signature: str | None = None


class SayCite(ScriptStruct, frozen=True, kw_only=True):
    cite: Citation


class SayProviderCall(ScriptStruct, frozen=True, kw_only=True):
    provider: str
    args: dict[str, Any] = {}
    result: Any = None
    kind: str | None = None
    error: str | None = None


class SayFiles(ScriptStruct, frozen=True, kw_only=True):
    files: tuple[File, ...]


class SayFail(ScriptStruct, frozen=True, kw_only=True):
    fail: str
    retriable: bool = True
    message: str = Fail().message
    retry_after_s: float | None = None
    times: int | None = None


class SayStop(ScriptStruct, frozen=True, kw_only=True):
    stop: replies.MessageStop


class SaySpend(ScriptStruct, frozen=True, kw_only=True):
    spend: Usage


class StepCondition(ScriptStruct, frozen=True, kw_only=True):
    text: str | None = None
    matches: str | None = None
    result: str | None = None
    step: int | None = None


class ScriptStep(ScriptStruct, frozen=True, kw_only=True):
    say: list[Any]
    when: StepCondition | None = None


class ScriptFile(ScriptStruct, frozen=True, kw_only=True):
    steps: list[ScriptStep]
    pace_s: float = 0.0
    first_s: float = 0.0


PartFactory = Callable[[Any], ScriptPart]

PART_TYPES: dict[str, tuple[type[ScriptStruct], PartFactory]] = {
    "tool": (SayTool, lambda said: ToolUse(said.tool, said.args)),
    "think": (SayThinking, lambda said: Thinking(said.think, said.signature)),
    "cite": (SayCite, lambda said: Cite(said.cite)),
    "provider": (
        SayProviderCall,
        lambda said: ProviderCall(said.provider, said.args, said.result, said.kind, said.error),
    ),
    "files": (SayFiles, lambda said: Files(said.files)),
    "fail": (SayFail, lambda said: Fail(said.fail, said.retriable, said.message, said.retry_after_s)),
    "stop": (SayStop, lambda said: EndMessage(said.stop)),
    "spend": (SaySpend, lambda said: UsageReport(said.spend)),
}


@dataclass(frozen=True, slots=True)
class ConversationState:
    """What a step may ask about the conversation."""

    text: str  # what the user said last
    steps: int  # messages of the model since then
    results: dict[str, str]  # by tool: what came last, if that is results
    message_count: int  # of the conversation


@dataclass(frozen=True, slots=True)
class ScriptedSteps:
    """A checked script: a function from the conversation to parts."""

    path: str
    steps: list[ScriptStep]
    _failure_counts: Counter[tuple[int, int, int]] = field(default_factory=Counter)

    def __call__(self, messages: list[Message]) -> Iterator[ScriptPart]:
        now = read_conversation(messages)
        for number, step in enumerate(self.steps):
            names = match_step(step.when, now)
            if names is not None:
                return self._build_parts(number, step.say, now, names)
        said = f"{self.path} has no step for {quote(now.text)}"
        raise ModelError("no_step", said + (f" after {', '.join(now.results)}" if now.results else ""))

    def _build_parts(
        self, number: int, say: list[Any], now: ConversationState, names: dict[str, str]
    ) -> Iterator[ScriptPart]:
        for place, part in enumerate(say):
            times = part.get("times") if isinstance(part, dict) else None
            key = number, place, now.message_count
            if times is not None and self._failure_counts[key] >= times:
                continue
            if times is not None:
                self._failure_counts[key] += 1
            yield build_part(interpolate(part, names))


def load_script(path: str) -> Scripted:
    """The model that plays a file."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CallerError(f"cannot read the script {path}: {error.strerror}") from None
    play = read_script(data, path)
    return Scripted(ScriptedSteps(path, play.steps), play.pace_s, f"scripted:{Path(path).stem}", play.first_s)


def read_script(data: bytes, path: str) -> ScriptFile:
    """A script with every part of it checked; what is wrong is named by its JSON path."""
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallerError(f"{path} is not JSON: {error}") from None
    listed = isinstance(tree, list)
    play = convert_or_raise(tree, list[ScriptStep] if listed else ScriptFile, "$", path)
    play = ScriptFile(steps=play) if listed else play
    steps = "$" if listed else "$.steps"
    for number, step in enumerate(play.steps):
        place = f"{steps}[{number}]"
        if step.when and step.when.matches is not None:
            try:
                re.compile(step.when.matches)
            except re.error as error:
                raise script_error(
                    path, f"expected a regular expression: {error}", f"{place}.when.matches"
                ) from None
        for index, part in enumerate(step.say):
            check_part(part, f"{place}.say[{index}]", path)
    return play


def check_part(part: Any, place: str, path: str) -> None:
    """One part of `say`: a text, or an object with one of the known keys."""
    if isinstance(part, str):
        return
    shape = find_part_type(part) if isinstance(part, dict) else None
    if shape is None:
        raise script_error(path, f"expected a text or an object with one of {', '.join(PART_TYPES)}", place)
    convert_or_raise(part, shape[0], place, path)


def find_part_type(part: dict[str, Any]) -> tuple[type[ScriptStruct], PartFactory] | None:
    return next((shape for key, shape in PART_TYPES.items() if key in part), None)


def build_part(part: Any) -> ScriptPart:
    """A part that was checked."""
    if isinstance(part, str):
        return part
    shape = find_part_type(part)
    assert shape is not None
    return shape[1](msgspec.convert(part, shape[0]))


def convert_or_raise(tree: Any, kind: Any, place: str, path: str) -> Any:
    """A value of a kind, or an error that says where it is not."""
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        sentence, inside = split_validation_error(error)
        raise script_error(path, sentence, place + inside.removeprefix("$")) from None


def script_error(path: str, sentence: str, place: str) -> CallerError:
    return CallerError(f"{path}: {sentence} (at {place})")


def match_step(when: StepCondition | None, now: ConversationState) -> dict[str, str] | None:
    """What the names in braces stand for, if a step fits."""
    names = {"text": now.text, "result": "\n".join(now.results.values())}
    if when is None:
        return names
    if when.text is not None and when.text.lower() not in now.text.lower():
        return None
    if when.step is not None and when.step != now.steps:
        return None
    if when.result is not None and when.result not in now.results:
        return None
    if when.step is None and when.result is None and now.steps:
        return None
    if when.matches is None:
        return names
    match = re.search(when.matches, now.text)
    return names | match.groupdict("") if match else None


def read_conversation(messages: list[Message]) -> ConversationState:
    """Where the conversation stands."""
    text, steps = "", 0
    tools: dict[str, str] = {}
    results: dict[str, str] = {}
    for message in messages:
        words = [part["text"] for part in message.content if part["type"] == "text"]
        if message.role == "assistant":
            steps += 1
            tools |= {part["id"]: part["name"] for part in message.content if part["type"] == "tool_use"}
            results = {}
        else:
            answers = [part for part in message.content if part["type"] == "tool_result"]
            results = {
                tools.get(part["tool_use_id"], ""): tool_result_text(part["content"]) for part in answers
            }
            if words:
                text, steps, results = "\n".join(words), 0, {}
    return ConversationState(text, steps, results, len(messages))


def tool_result_text(content: str | Iterable[dict[str, Any]]) -> str:
    """The words of a result."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def interpolate(value: Any, names: dict[str, str]) -> Any:
    """A value with every `{name}` that is known replaced; other braces stay as they are."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], found[0]), value)
    if isinstance(value, list):
        return [interpolate(item, names) for item in value]
    if isinstance(value, dict):
        return {key: interpolate(item, names) for key, item in value.items()}
    return value
