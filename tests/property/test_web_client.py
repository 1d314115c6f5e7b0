"""The folds and checks of the client library and those of the package say the same, whatever the log."""

import json
import re
from typing import Any

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.property.test_state import sessions
from tests.support.blocks_readers import Ask
from tests.support.examples import examples
from tests.support.random_views import NEARLY, TREES, Tree, scenes
from tests.support.written_logs import Item, entry
from turnlog.events import AssistantView, UiAction, View
from turnlog.events.view_nodes import find_view_error
from turnlog.state.meters import Meters
from turnlog.state.pending import build_pending_report
from turnlog.state.transcript import Transcript, TranscriptEntry
from turnlog.state.tree import Tree as AgentTree
from turnlog.state.view_actions import ActionProblem, OpenViews, validate_action
from turnlog.team.documents import Documents

some = examples(18)
NUMBER = re.compile(r"-?\d[\d.]*(e[+-]?\d+)?")
SAFE = 2**53 - 1  # beyond it a page has another number than the server


def as_sent(item: Item) -> Any:
    """An event as a reader gets it."""
    return json.loads(msgspec.json.encode(item[0]))


def values(bubbles: list[TranscriptEntry]) -> Any:
    return msgspec.to_builtins(bubbles)


def numbers(meters: Meters) -> Any:
    """A report without costs of nothing: a sum that came to 0.0 is told, one that never began is not."""
    report = meters.report()
    for meter in (report["session"], *report["turns"].values(), *report["agents"].values()):
        if meter.get("cost_usd") == 0:
            del meter["cost_usd"]
    return report


def folded(items: list[Item]) -> list[Any]:
    """After every event, all that the package makes of the log so far."""
    transcript, meters, tree, documents = Transcript(), Meters(), AgentTree(), Documents()
    told = []
    for envelope, payload in items:
        for fold in (transcript, meters, tree):
            fold.apply(envelope, payload)
        changed = [
            {**made._asdict(), "body": json.loads(made.body)} for made in documents.apply(envelope, payload)
        ]
        told.append(
            {
                "bubbles": values(list(transcript.entries.values())),
                "meters": numbers(meters),
                "open": build_pending_report(tree),
                "documents": changed,
                "seen": {
                    "bubbles": values(transcript.visible_in(["customer"])),
                    "meters": numbers(meters.visible_in(["customer"])),
                },
            }
        )
    return told


def test_every_fold_after_every_event(ask: Ask) -> None:
    @some
    @given(sessions())
    def holds(items: list[Item]) -> None:
        answers = ask({"log": [as_sent(item) for item in items], "vocabulary": "broker"})
        for answer, expected in zip(answers, folded(items), strict=True):
            for name, value in expected.items():
                assert answer[name] == value, name

    holds()


def is_small(value: Any) -> bool:
    """Whether every language holds the same value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return abs(value) <= SAFE
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return all(is_small(each) for each in inner)


def test_which_trees_can_be_shown(ask: Ask) -> None:
    @some
    @given(st.one_of(TREES, NEARLY))
    def holds(tree: Any) -> None:
        assume(is_small(tree))
        assert (ask({"tree": tree}) is None) == (find_view_error(tree) is None)

    holds()


def told(problem: ActionProblem) -> Any:
    return {"kind": problem.kind, "path": list(problem.path), "message": problem.message}


def alike(problems: list[Any]) -> list[Any]:
    """Problems whose numbers are written the same way."""
    written = [NUMBER.sub(lambda found: repr(float(found[0])), problem["message"]) for problem in problems]
    return [{**problem, "message": message} for problem, message in zip(problems, written, strict=True)]


def test_what_is_wrong_with_an_action(ask: Ask) -> None:
    @some
    @given(scenes())
    def holds(scene: tuple[Tree, list[Any]]) -> None:
        tree, actions = scene
        assume(is_small(tree))
        log = [entry(AssistantView(view=View(kind="a2ui.v1", view_id="v", tree=tree)))]
        for action in actions:
            payload = UiAction(view_id="v", action=action)
            assume(is_small(msgspec.to_builtins(payload)))
            views = OpenViews()
            for item in log:
                views.apply(*item)
            asked = {"views": [as_sent(item) for item in log], "action": msgspec.to_builtins(payload)}
            assert alike(list(ask(asked))) == alike(
                [told(problem) for problem in validate_action(views, payload)]
            )
            log.append(entry(payload, seq=len(log)))

    holds()
