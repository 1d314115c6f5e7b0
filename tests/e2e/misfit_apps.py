"""An application before and after the type of a field was changed."""

from typing import ClassVar

from turnlog import Agent, App, Payload, Vocabulary
from turnlog.agents import Scripted


def make_app(weigh: type[Payload]) -> App:
    scale = Agent("Scale", "", Scripted(lambda messages: ["Hm."]))
    return App("scale", scale, vocabulary=Vocabulary("scale", [weigh]), reducers={weigh: keep})


def keep(state: object, event: Payload, envelope: object) -> dict[str, object]:
    return {"pounds": getattr(event, "pounds", None)}


class Before:
    class Weigh(Payload, frozen=True, kw_only=True):
        ORIGINS: ClassVar = frozenset({"ui"})

        pounds: str


class After:
    class Weigh(Payload, frozen=True, kw_only=True):
        ORIGINS: ClassVar = frozenset({"ui"})

        pounds: int


before = make_app(Before.Weigh)
after = make_app(After.Weigh)
