"""Views under any input: a tree is shown or has a flaw, an action is taken once or has problems."""

from typing import Any

from hypothesis import given
from msgspec import json, to_builtins

from tests.support.examples import examples
from tests.support.random_views import NEARLY, TREES, Tree, scenes
from tests.support.written_logs import entry
from turnlog.events import AssistantView, UiAction, View, view_nodes
from turnlog.events.ui import ButtonClick, FormSubmit, TableSave
from turnlog.events.view_nodes import Button, Form, TableEditor
from turnlog.state.view_actions import MAX_OPEN_PARTS, MAX_PROBLEMS, OpenViews, validate_action

MANY = examples(25)


def shown(tree: Tree, seq: int = 0) -> Any:
    return entry(AssistantView(view=View(kind="a2ui.v1", view_id="v", tree=tree)), seq=seq)


@MANY
@given(TREES)
def test_what_can_be_shown_is_read_and_written_the_same(tree: Tree) -> None:
    assert view_nodes.find_view_error(tree) is None
    root = view_nodes.parse_view_tree(tree)
    assert root is None or view_nodes.parse_view_tree(to_builtins(root)) == root
    assert shown(tree)[1].view.tree == json.decode(json.encode(tree))


@MANY
@given(NEARLY)
def test_any_value_is_shown_or_refused(tree: Any) -> None:
    flaw = view_nodes.find_view_error(tree)
    assert flaw is None or all(isinstance(part, str) for part in flaw)


@MANY
@given(scenes())
def test_any_action_is_taken_or_refused_and_nothing_is_doubled(scene: tuple[Tree, list[Any]]) -> None:
    tree, actions = scene
    folded = OpenViews()
    folded.apply(*shown(tree))
    for action in actions:
        payload = UiAction(view_id="v", action=action)
        problems = validate_action(folded, payload)
        assert len(problems) <= MAX_PROBLEMS
        assert len({problem.kind for problem in problems}) <= 1
        if not problems:
            folded.record_action(payload)
            again = validate_action(folded, payload)
            assert bool(again) == is_once(folded, action)
    assert folded.part_count <= MAX_OPEN_PARTS


def is_once(folded: OpenViews, action: Any) -> bool:
    """Whether the view says that the same action may not come again."""
    part = folded.open[None, "v"].parts_by_id.get(
        next(getattr(action, key) for key in action.__struct_fields__)
    )
    if isinstance(action, FormSubmit | ButtonClick):
        assert isinstance(part, Form | Button)
        return not part.repeat
    assert isinstance(part, TableEditor)
    return isinstance(action, TableSave) or hasattr(action, "row_id")
