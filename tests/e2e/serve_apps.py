"""Applications whose agent runs in other processes."""

from typing import ClassVar

from turnlog import App, Vocabulary
from turnlog.adapters import RemoteAgent, ToolPolicy
from turnlog.events import Payload


class Note(Payload, frozen=True, kw_only=True):
    """The model wrote something down."""

    EXAMPLE: ClassVar = {"text": "milk"}

    text: str


POLICIES = {"delete": ToolPolicy(risk="danger")}

support = App("support", RemoteAgent("Support", policies=POLICIES), vocabulary=Vocabulary("shop", [Note]))
# the server waits only a moment for a silent worker, and says soon that it waits for one
impatient = App("support", RemoteAgent("Support", policies=POLICIES, lease_s=2.0, notice_s=0.1))
