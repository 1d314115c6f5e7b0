"""A credit broker: two guides and two pages that share one case, as events (the whole scenario of seed 000).

    turnlog serve turnlog_examples.broker:app --log sqlite:///broker.db
    python -m turnlog_examples.broker audit SESSION --log sqlite:///broker.db

events        everything that can happen, and who may say it
case          what the events make of a case; `disclosures`, `panel` and `quote` are what it knows
waterfall     the lenders, asked one after the other; `rules` says when, and closes gaps
buttons       what only the customer decides, as a view for pages that are not the broker's own
title         what a case is called in a list of sessions
audit         timeline, compliance figures, disclosures asked for again; `__main__` shows them
script        what the guides say; `answers` is what they understand, `instructions` is for a real model

The member who creates a session is its installer. The installer's page gets the customer's link from
`POST /api/links` with `{"session": ..., "roles": ["customer"]}`, once the answer of a chat has
`generate_customer_link`. Who redeems it is the only customer. Both have a channel and a guide.
The customer sees the whole case. The installer sees the project and its progress, and nothing that the
customer told about themselves.
"""

from collections.abc import Mapping
from pathlib import Path

from turnlog import Agent, App
from turnlog.agents import Model, Scripted
from turnlog.app import Roles, RoleView
from turnlog.events import Payload
from turnlog_examples.broker import buttons, events, instructions, script, title
from turnlog_examples.broker.case import Case, new_case
from turnlog_examples.broker.events import BROKER
from turnlog_examples.broker.rules import RULES

__all__ = ["EMITS", "POSTS", "ROLES", "RULES", "app", "make_agents", "make_app", "start"]

GUIDE = Path(__file__).with_name("guide.md")
TRIES = (
    "£12,500, no deposit, panels with a battery, 4 kWp",
    "£30,000, 20% deposit, panels, a battery and an EV charger, 8 kWp",
    "What do you need to know?",
    "Please call it off",
)
RETAILER = "Brightside Solar"
INSTALLERS = frozenset(
    {
        "sessionId",
        "retailerName",
        "status",
        "project",
        "contact",
        "installerHandoffComplete",
        "createdAt",
        "updatedAt",
    }
)

# What the page of each role may post. Only the customer's page consents, submits and decides.
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

# What the guide of each role may say: the installer's guide calls a project off, and judges no customer.
EMITS: Mapping[str, tuple[type[Payload], ...]] = {
    "installer": (*POSTS["installer"], events.Withdraw),
    "customer": (
        *(one for one in events.TAXONOMY if one not in POSTS["installer"] and not one.LEGACY),
        events.RecordProjectFacts,
        events.RecordCustomerContact,
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


def for_installer(case: Case) -> dict[str, object]:
    """What the installer sees of a case."""
    return {name: value for name, value in case.items() if name in INSTALLERS}


def for_customer(case: Case) -> Case:
    """What the customer sees of a case: it is theirs, so all of it."""
    return case


ROLES = Roles(
    creator=("installer",),
    postable_events=POSTS,
    emits=EMITS,
    state_views={"installer": for_installer, "customer": for_customer},
    invitable_roles={"installer": ("customer",)},
    unique=frozenset({"customer"}),
    event_views={"customer": RoleView(events=None)},  # of the case all, of the machinery nothing
)


def start() -> Case:
    """A case of this broker's retailer, of which nothing else is known."""
    return new_case(RETAILER)


def make_app(pace_s: float = 0.0, model: Model | str | None = None) -> App:
    """The application."""
    return App(
        "broker",
        make_agents(pace_s, model),
        vocabulary=BROKER,
        reducers=buttons.REDUCERS,
        rules=(*RULES, *buttons.RULES),
        title_of=title.title,
        initial_state=start,
        roles=ROLES,
        title="Credit broker",
        guide=GUIDE,
        suggestions=TRIES,
        untitled=title.UNKNOWN,
    )


app = make_app(pace_s=0.05)
