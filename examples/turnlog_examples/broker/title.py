"""The title of a case in a list of sessions: its project, which both sides see.

All that is said stands in a channel, so no message becomes the title. The rule makes one of numbers and kinds
alone: no words of one side reach the other by it. It says nothing before there is something to say: until
then the session is listed as `UNKNOWN`. A title that a member gave stays.
"""

from turnlog.events import Envelope, Payload, SessionTitle
from turnlog.state.fold import Reducers
from turnlog.state.rules import Rule
from turnlog_examples.broker.case import Case

UNKNOWN = "A new project"
INSTALLED = {
    "panels_only": "panels",
    "panels_battery": "panels and battery",
    "panels_battery_ev": "panels, battery and EV charger",
    "panels_battery_ev_other": "panels, battery, EV charger and more",
}


def title(case: Case) -> str:
    """What a case is called."""
    value, spec = case["project"].get("projectValue"), case["project"].get("productSpec")
    words = [*([f"£{value:,.0f}"] if value is not None else []), *([INSTALLED[spec]] if spec else [])]
    return ", ".join(words) or UNKNOWN


def titled(case: Case, payload: SessionTitle, at: Envelope) -> Case:
    return {**case, "title": {"text": payload.title, "origin": at.origin}}


def to_title(case: Case) -> bool:
    given = case.get("title", {"text": UNKNOWN, "origin": "app"})
    return given["origin"] == "app" and given["text"] != title(case)


def entitle(case: Case) -> list[Payload]:
    return [SessionTitle(title=title(case))]


REDUCERS: Reducers = {SessionTitle: titled}
RULES = (Rule("title", "apply", to_title, entitle),)
