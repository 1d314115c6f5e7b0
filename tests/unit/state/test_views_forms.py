"""Whether a form of an open view still waits for a person."""

import pytest

from tests.logs import entry
from turnlog.events import AssistantView, Scope, UiAction, View
from turnlog.events.ui import FormSubmit
from turnlog.events.views import Button, Form, Node, TextField
from turnlog.state.views import Views, everything

FIELDS = [TextField("name", "Name")]
SENT = UiAction(view_id="v", action=FormSubmit(form_id="f", values={"name": "Ada"}))


def views_with(node: Node) -> Views:
    views = Views()
    envelope, payload = entry(AssistantView(view=View.of("v", node)), seq=0, at=Scope(channel="buyer"))
    views.apply(envelope, payload)
    return views


def test_has_unsent_form_with_a_form_waits_until_it_is_sent() -> None:
    views = views_with(Form("f", FIELDS))
    assert views.has_unsent_form(everything)
    views.take(SENT)
    assert not views.has_unsent_form(everything)


def test_has_unsent_form_with_a_form_of_another_channel_is_false() -> None:
    views = views_with(Form("f", FIELDS))
    assert not views.has_unsent_form(lambda channel: channel == "seller")


@pytest.mark.parametrize(
    "node", [Form("f", FIELDS, repeat=True), Button("b", "Next")], ids=["repeat", "button"]
)
def test_has_unsent_form_with_what_asks_for_nothing_is_false(node: Node) -> None:
    assert not views_with(node).has_unsent_form(everything)
