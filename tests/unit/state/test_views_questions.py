"""Whether an open view still waits for a person."""

import pytest

from tests.support.written_logs import entry
from turnlog.events import AssistantView, Scope, UiAction, View
from turnlog.events.ui import ButtonClick, FormSubmit
from turnlog.events.view_nodes import Button, Form, NumberField, Screen, TableEditor, TextField
from turnlog.state.channels import may_see_all
from turnlog.state.view_actions import OpenViews

FIELDS = [TextField("name", "Name")]
FORM = Form("f", FIELDS)
YES, NO = Button("yes", "Yes"), Button("no", "No")
SUBMIT = UiAction(view_id="v", action=FormSubmit(form_id="f", values={"name": "Ada"}))
CLICK = UiAction(view_id="v", action=ButtonClick(button_id="no"))


def views_with(*nodes: Form | Button | TableEditor) -> OpenViews:
    views = OpenViews()
    shown = AssistantView(view=View.of("v", Screen(list(nodes))))
    envelope, payload = entry(shown, seq=0, at=Scope(channel="buyer"))
    views.apply(envelope, payload)
    return views


def test_has_question_with_a_form_is_true_until_it_is_sent() -> None:
    views = views_with(FORM)
    assert views.has_question(may_see_all)
    views.record_action(SUBMIT)
    assert not views.has_question(may_see_all)


def test_has_question_with_two_buttons_is_true_until_one_is_pressed() -> None:
    views = views_with(YES, NO)
    assert views.has_question(may_see_all)
    views.record_action(CLICK)
    assert not views.has_question(may_see_all)


def test_has_question_with_a_view_of_another_channel_is_false() -> None:
    assert not views_with(FORM).has_question(lambda channel: channel == "seller")


@pytest.mark.parametrize(
    "node",
    [
        Form("f", FIELDS, repeat=True),
        Button("b", "Next", repeat=True),
        TableEditor("t", [NumberField("n", "N")], []),
    ],
    ids=["form", "button", "table"],
)
def test_has_question_with_what_may_be_used_again_is_false(node: Form | Button | TableEditor) -> None:
    assert not views_with(node).has_question(may_see_all)
