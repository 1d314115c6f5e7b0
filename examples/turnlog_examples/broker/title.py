"""The title of a case in a list of sessions: its project, which both sides see.

All messages are in a channel, so no message becomes the title. The title has numbers and kinds only: no words
of one side reach the other by it. A case without a project is listed as `UNKNOWN`.
"""

from turnlog_examples.broker.case import Case

UNKNOWN = "A new project"
INSTALLED = {
    "panels_only": "panels",
    "panels_battery": "panels and battery",
    "panels_battery_ev": "panels, battery and EV charger",
    "panels_battery_ev_other": "panels, battery, EV charger and more",
}


def title(case: Case) -> str:
    """Return the price and what is installed; an empty title while neither is known."""
    value, spec = case["project"].get("projectValue"), case["project"].get("productSpec")
    words = []
    if value is not None:
        words.append(f"£{value:,.0f}")
    if spec:
        words.append(INSTALLED[spec])
    return ", ".join(words)
