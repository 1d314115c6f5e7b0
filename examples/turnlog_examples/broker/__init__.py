"""A credit broker: two guides and two pages that share one case, as events (the whole scenario of seed 000).

events        everything that can happen, and who may say it
case          what the events make of a case; `disclosures`, `panel` and `quote` are what it knows
waterfall     the lenders, asked one after the other; `rules` says when, and closes gaps
audit         timeline, compliance figures, disclosures asked for again
script        what the guides say; `answers` is what they understand, `instructions` is for a real model
"""

from collections.abc import Mapping

from turnlog import Agent, App
from turnlog.agents import Model, Scripted
from turnlog.events import Payload
from turnlog_examples.broker import events, instructions, script
from turnlog_examples.broker.case import REDUCERS, new_case
from turnlog_examples.broker.events import BROKER
from turnlog_examples.broker.rules import RULES

__all__ = ["POSTS", "RULES", "app", "make_agents", "make_app"]

RETAILER = "Brightside Solar"

# What the page of each role may post: nobody consents, submits or decides in the customer's place.
POSTS: Mapping[str, tuple[type[Payload], ...]] = {
    "installer": (
        events.RecordProjectFacts,
        events.RecordCustomerContact,
        events.GenerateCustomerLink,
        events.InstallerHandoffComplete,
    ),
    "customer": (
        events.RecordEligibility,
        events.RecordProvisionalQuote,
        events.RecordEmailPreference,
        events.RecordPersonalFacts,
        events.RecordFinancialFacts,
        events.RecordVulnerabilityIndicators,
        events.PresentDisclosure,
        events.AcknowledgeDisclosure,
        events.CaptureConsent,
        events.SubmitApplication,
        events.AcceptCounterOffer,
        events.RefuseCounterOffer,
        events.SelectOffer,
        events.Withdraw,
    ),
}


def make_agents(pace_s: float = 0.0, model: Model | str | None = None) -> dict[str, Agent]:
    """A guide for each role, which is also its channel; a model of your own speaks for itself."""
    return {
        "installer": Agent(
            "Installer guide", instructions.INSTALLER, model or Scripted(script.installer, pace_s)
        ),
        "customer": Agent(
            "Customer guide", instructions.CUSTOMER, model or Scripted(script.customer, pace_s)
        ),
    }


def make_app(pace_s: float = 0.0, model: Model | str | None = None) -> App:
    """The application, from the customer's side."""
    return App(
        "broker",
        make_agents(pace_s, model)["customer"],
        vocabulary=BROKER,
        reducers=REDUCERS,
        start=lambda: new_case(RETAILER),
    )


app = make_app(pace_s=0.05)
