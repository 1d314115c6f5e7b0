"""JSON scripts: the files that `scripted:<path>` plays. A file is read and checked once, by `load_script`.

    {"pace_s": 0.03, "first_s": 0.4, "steps": [
      {"when": {"text": "weather"},   "say": ["Let me see.", {"tool": "weather", "args": {"city": "Oslo"}}]},
      {"when": {"result": "weather"}, "say": ["It is {result} there."]},
      {"when": {"matches": "trip to (?P<city>\\\\w+)"}, "say": [{"think": "A trip."}, "To {city}!"]},
      {"say": ["I only know the weather and trips."]}]}

A file may also be a bare list of steps. Each request to the model plays the first step that matches:

    text      the last user message contains this text, in upper or lower case
    matches   the last user message matches this regular expression; `say` may use its named groups
    result    the conversation ends with a result of this tool
    step      the number of messages of the model since the last user message, from 0
    no `when` always matches

After a result only steps with `result` or `step`, or without `when`, match: else a step would answer itself.
In texts and arguments `{text}`, `{result}` and the groups' names in braces are replaced. The parts of `say`,
beside texts:

    {"tool": name, "args": {}}                     {"think": text, "signature": text}
    {"cite": {"type": ..., "cited_text": ...}}     {"provider": tool, "args": {}, "result": any, "kind": name}
    {"files": [{"file_id": ..., "filename": ..., "storage_location": ...}]}
    {"fail": code, "retriable": true, "message": text, "retry_after_s": 1, "times": 1}
    {"stop": reason}                               {"spend": {"input_tokens": 1, "output_tokens": 2}}

`fail` with `times` fails so often in each state of the conversation, and then no more: a retry succeeds.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
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
    ScriptStruct,
    Thinking,
    ToolUse,
    UsageReport,
)
from turnlog.errors import CallerError, quote
from turnlog.events.strict_json import split_validation_error
from turnlog.state.history import Message


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


# the key by which a part of `say` is recognised
PART_TYPES: dict[str, type[ScriptStruct]] = {
    "tool": ToolUse,
    "think": Thinking,
    "cite": Cite,
    "provider": ProviderCall,
    "files": Files,
    "fail": Fail,
    "stop": EndMessage,
    "spend": UsageReport,
}


@dataclass(frozen=True, slots=True)
class ConversationState:
    """The facts of a conversation that a step may test."""

    text: str  # of the last user message
    steps: int  # messages of the model since then
    results: dict[str, str]  # by tool, if the conversation ends with results
    message_count: int


@dataclass(frozen=True, slots=True)
class ScriptedSteps:
    """A checked script: a function from the conversation to parts."""

    path: str
    steps: list[ScriptStep]
    _failure_counts: Counter[tuple[int, int, int]] = field(default_factory=Counter)

    def __call__(self, messages: list[Message]) -> Iterator[ScriptPart]:
        state = read_conversation(messages)
        for number, step in enumerate(self.steps):
            names = match_step(step.when, state)
            if names is not None:
                return self._build_parts(number, step.say, state, names)
        message = f"{self.path} has no step for {quote(state.text)}"
        if state.results:
            message += f" after {', '.join(state.results)}"
        raise ModelError("no_step", message)

    def _build_parts(
        self, number: int, say: list[Any], state: ConversationState, names: dict[str, str]
    ) -> Iterator[ScriptPart]:
        for index, value in enumerate(say):
            part = build_part(interpolate(value, names))
            if isinstance(part, Fail) and part.times is not None:
                key = number, index, state.message_count
                if self._failure_counts[key] >= part.times:
                    continue
                self._failure_counts[key] += 1
            yield part


def load_script(path: str) -> Scripted:
    """Return the model that plays a file. Raise `CallerError` if it cannot be read or is not valid."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CallerError(f"cannot read the script {path}: {error.strerror}") from None
    script = read_script(data, path)
    steps = ScriptedSteps(path, script.steps)
    return Scripted(steps, script.pace_s, f"scripted:{Path(path).stem}", script.first_s)


def read_script(data: bytes, path: str) -> ScriptFile:
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallerError(f"{path} is not JSON: {error}") from None

    if isinstance(tree, list):
        steps_path = "$"
        script = ScriptFile(steps=convert_or_raise(tree, list[ScriptStep], "$", path))
    else:
        steps_path = "$.steps"
        script = convert_or_raise(tree, ScriptFile, "$", path)
    for number, step in enumerate(script.steps):
        check_step(step, f"{steps_path}[{number}]", path)
    return script


def check_step(step: ScriptStep, json_path: str, path: str) -> None:
    if step.when and step.when.matches is not None:
        try:
            re.compile(step.when.matches)
        except re.error as error:
            message = f"expected a regular expression: {error}"
            raise script_error(path, message, f"{json_path}.when.matches") from None
    for index, part in enumerate(step.say):
        check_part(part, f"{json_path}.say[{index}]", path)


def check_part(part: Any, json_path: str, path: str) -> None:
    if isinstance(part, str):
        return
    part_type = find_part_type(part) if isinstance(part, dict) else None
    if part_type is None:
        keys = ", ".join(PART_TYPES)
        raise script_error(path, f"expected a text or an object with one of {keys}", json_path)
    convert_or_raise(part, part_type, json_path, path)


def find_part_type(part: dict[str, Any]) -> type[ScriptStruct] | None:
    return next((part_type for key, part_type in PART_TYPES.items() if key in part), None)


def build_part(value: Any) -> ScriptPart:
    if isinstance(value, str):
        return value
    part_type: Any = find_part_type(value)
    part: ScriptPart = msgspec.convert(value, part_type)
    return part


def convert_or_raise(value: Any, type_: Any, json_path: str, path: str) -> Any:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        message, inner_path = split_validation_error(error)
        raise script_error(path, message, json_path + inner_path.removeprefix("$")) from None


def script_error(path: str, message: str, json_path: str) -> CallerError:
    return CallerError(f"{path}: {message} (at {json_path})")


def match_step(when: StepCondition | None, state: ConversationState) -> dict[str, str] | None:
    """Return the values of the names in braces if a step matches, else None."""
    names = {"text": state.text, "result": "\n".join(state.results.values())}
    if when is None:
        return names
    if when.text is not None and when.text.lower() not in state.text.lower():
        return None
    if when.step is not None and when.step != state.steps:
        return None
    if when.result is not None and when.result not in state.results:
        return None
    # a step without these conditions would match again after the results of its own calls
    if when.step is None and when.result is None and state.steps:
        return None
    if when.matches is None:
        return names
    match = re.search(when.matches, state.text)
    return names | match.groupdict("") if match else None


def read_conversation(messages: list[Message]) -> ConversationState:
    last_text = ""
    steps = 0
    tool_names: dict[str, str] = {}  # by call id
    results: dict[str, str] = {}
    for message in messages:
        results = {}
        if message.role == "assistant":
            steps += 1
            for part in message.content:
                if part["type"] == "tool_use":
                    tool_names[part["id"]] = part["name"]
            continue

        texts = [part["text"] for part in message.content if part["type"] == "text"]
        if texts:
            last_text = "\n".join(texts)
            steps = 0
            continue
        for part in message.content:
            if part["type"] == "tool_result":
                tool = tool_names.get(part["tool_use_id"], "")
                results[tool] = tool_result_text(part["content"])
    return ConversationState(last_text, steps, results, len(messages))


def tool_result_text(content: str | Iterable[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def interpolate(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [interpolate(item, names) for item in value]
    if isinstance(value, dict):
        return {key: interpolate(item, names) for key, item in value.items()}
    return value
