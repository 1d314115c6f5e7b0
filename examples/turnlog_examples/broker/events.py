"""The broker's vocabulary: everything that can happen to a case.

Facts come from the model and from the pages. What binds a person (consents, submission, decisions on a
counter-offer, the acknowledgement of the credit search) comes from a page or a rule, never from the model.
What closes a case never comes from a page. What the lenders answer comes from the application alone.
"""

from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from turnlog import Vocabulary
from turnlog.events import Payload, Record

MODEL_OR_PAGE = frozenset({"model", "ui", "app"})
PAGE_OR_RULE = frozenset({"ui", "app"})
NOT_THE_PAGE = frozenset({"model", "app"})
APP = frozenset({"app"})

DisclosureId = Literal["service_status", "credit_search_consent", "pre_contract_summary"]
ConsentType = Literal["credit_search", "data_sharing", "marketing"]
Position = Literal["Prime Priority 1", "Prime Priority 2", "Sub-Prime 1", "Sub-Prime 2"]
Pounds = Annotated[float, Meta(ge=0, le=1e9)]  # beyond any household: sums with pence stay exact
Percent = Annotated[float, Meta(ge=0, le=100)]
Size = Annotated[float, Meta(ge=0, le=1e6)]  # kWp, kWh
Months = Annotated[int, Meta(ge=1, le=600)]  # fifty years


class Fact(Payload, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The shared form of the broker's payloads: camel case on the wire."""

    ORIGINS: ClassVar[Any] = MODEL_OR_PAGE


class RecordProjectFacts(Fact, frozen=True, kw_only=True, rename="camel"):
    """Facts about the project became known."""

    EXAMPLE: ClassVar = {"projectValue": 15000, "depositPct": 10, "productSpec": "panels_battery"}

    project_value: Pounds | None = None
    deposit_amount: Pounds | None = None
    deposit_pct: Percent | None = None
    product_spec: (
        Literal["panels_only", "panels_battery", "panels_battery_ev", "panels_battery_ev_other"] | None
    ) = None
    system_kwp: Size | None = None
    battery_kwh: Size | None = None
    retailer_name: str | None = None


class RecordCustomerContact(Fact, frozen=True, kw_only=True, rename="camel"):
    """How to reach the customer became known."""

    EXAMPLE: ClassVar = {"mobile": "07700 900 123"}

    first_name: str | None = None
    last_name: str | None = None
    email: str | None = None
    mobile: str | None = None


class GenerateCustomerLink(Fact, frozen=True, kw_only=True, rename="camel"):
    """The customer gets a link of their own."""


class InstallerHandoffComplete(Fact, frozen=True, kw_only=True, rename="camel"):
    """The installer is done; the customer goes on alone."""


class RecordEligibility(Fact, frozen=True, kw_only=True, rename="camel"):
    """The customer answered the four questions of eligibility."""

    EXAMPLE: ClassVar = {"isOver18": True, "isUkResident": True, "isHomeowner": True, "isEmployed": True}

    is_over_18: bool
    is_uk_resident: bool
    is_homeowner: bool
    is_employed: bool


class RecordProvisionalQuote(Fact, frozen=True, kw_only=True, rename="camel"):
    """A term was chosen; the server computes the quote."""

    EXAMPLE: ClassVar = {"termMonths": 120}

    term_months: Months


class RecordEmailPreference(Fact, frozen=True, kw_only=True, rename="camel"):
    """Whether the customer wants a copy by e-mail."""

    EXAMPLE: ClassVar = {"wantsEmailCopy": True, "email": "sarah@example.com"}

    wants_email_copy: bool
    email: str | None = None


class RecordPersonalFacts(Fact, frozen=True, kw_only=True, rename="camel"):
    """Facts about the customer became known."""

    EXAMPLE: ClassVar = {"fullName": "Sarah John's", "postcode": "SW1A 1AA", "propertyType": "Terraced"}

    full_name: str | None = None
    date_of_birth: str | None = None
    postcode: str | None = None
    address_line1: str | None = None
    address_line2: str | None = None
    town: str | None = None
    county: str | None = None
    property_type: Literal["Detached", "Semi-detached", "Terraced", "Flat", "Bungalow"] | None = None
    residential_status: Literal["Owner", "Mortgaged", "Tenant", "Other"] | None = None


class RecordFinancialFacts(Fact, frozen=True, kw_only=True, rename="camel"):
    """Facts about the customer's money became known."""

    EXAMPLE: ClassVar = {"employmentStatus": "Employed", "annualIncome": 41000}

    employment_status: Literal["Employed", "Self-employed", "Retired", "Unemployed", "Other"] | None = None
    annual_income: Pounds | None = None
    monthly_outgoings: Pounds | None = None
    existing_commitments: str | None = None


class RecordVulnerabilityIndicators(Fact, frozen=True, kw_only=True, rename="camel"):
    """The customer was asked about vulnerability."""

    EXAMPLE: ClassVar = {"indicators": ["bereavement_recent"], "note": "Asked to go slowly."}

    indicators: tuple[str, ...]
    note: str | None = None


class PresentDisclosure(Fact, frozen=True, kw_only=True, rename="camel"):
    """A disclosure was shown."""

    EXAMPLE: ClassVar = {"id": "service_status"}

    id: DisclosureId


def may_acknowledge(payload: "AcknowledgeDisclosure") -> frozenset[str]:
    """The model may take the service status as read; the rest binds the customer."""
    return MODEL_OR_PAGE if payload.id == "service_status" else PAGE_OR_RULE


class AcknowledgeDisclosure(Fact, frozen=True, kw_only=True, rename="camel"):
    """A disclosure was acknowledged."""

    ORIGINS: ClassVar[Any] = may_acknowledge
    EXAMPLE: ClassVar = {"id": "service_status"}

    id: DisclosureId


class CaptureConsent(Fact, frozen=True, kw_only=True, rename="camel"):
    """The customer granted or refused a consent."""

    ORIGINS: ClassVar[Any] = PAGE_OR_RULE
    EXAMPLE: ClassVar = {"consentType": "credit_search", "granted": True}

    consent_type: ConsentType
    granted: bool


class SubmitApplication(Fact, frozen=True, kw_only=True, rename="camel"):
    """The application goes to the lenders."""

    ORIGINS: ClassVar[Any] = PAGE_OR_RULE


class AcceptCounterOffer(Fact, frozen=True, kw_only=True, rename="camel"):
    """The customer takes the counter-offer: the one it names, or the one last told of."""

    ORIGINS: ClassVar[Any] = PAGE_OR_RULE
    EXAMPLE: ClassVar = {"offerId": "offer_1"}

    offer_id: str | None = None


class RefuseCounterOffer(Fact, frozen=True, kw_only=True, rename="camel"):
    """The customer refuses the counter-offer: the one it names, or the one last told of."""

    ORIGINS: ClassVar[Any] = PAGE_OR_RULE
    EXAMPLE: ClassVar = {"offerId": "offer_1"}

    offer_id: str | None = None


class SelectOffer(Fact, frozen=True, kw_only=True, rename="camel"):
    """An approved offer was chosen; kept from the older flow with parallel offers."""

    ORIGINS: ClassVar[Any] = PAGE_OR_RULE
    EXAMPLE: ClassVar = {"offerId": "offer_1"}

    offer_id: str


class Withdraw(Fact, frozen=True, kw_only=True, rename="camel"):
    """The customer leaves."""

    EXAMPLE: ClassVar = {"reason": "Too expensive"}

    reason: str | None = None


class CaseOutcome(Fact, frozen=True, kw_only=True, rename="camel"):
    """How the case ended; the first one counts."""

    ORIGINS: ClassVar[Any] = NOT_THE_PAGE
    EXAMPLE: ClassVar = {"kind": "declined", "reason": "No lender approved."}

    kind: Literal["selected", "declined", "ineligible", "withdrawn", "completed"]
    reason: str | None = None


class CaseComplete(Fact, frozen=True, kw_only=True, rename="camel"):
    """The case is closed."""

    ORIGINS: ClassVar[Any] = NOT_THE_PAGE


class RequestDecision(Fact, frozen=True, kw_only=True, rename="camel"):
    """The older flow asked all lenders at once."""

    LEGACY: ClassVar = True


class Offer(Record, frozen=True, kw_only=True, rename="camel"):
    id: str
    lender: str
    position: Position
    product_code: Literal["IFC", "BNPL", "IBC"] = "IBC"
    apr_pct: Percent
    term_months: Months
    monthly_payment: Pounds
    total_payable: Pounds
    net_loan_amount: Pounds
    estimated_monthly_solar_savings: Pounds | None = None
    net_cost_per_month: float | None = None


class ApprovedAsRequested(Record, frozen=True, kw_only=True, tag_field="kind", tag="approved_as_requested"):
    offer: Offer


class ApprovedWithCounter(Record, frozen=True, kw_only=True, tag_field="kind", tag="approved_with_counter"):
    offer: Offer
    reason: str


class Declined(Record, frozen=True, kw_only=True, tag_field="kind", tag="declined"):
    reason: str


Answer = ApprovedAsRequested | ApprovedWithCounter | Declined


class WaterfallStep(Fact, frozen=True, kw_only=True, rename="camel"):
    """One lender of the panel answered."""

    ORIGINS: ClassVar[Any] = APP
    EXAMPLE: ClassVar = {
        "index": 0,
        "lender": "Northgate Bank",
        "position": "Prime Priority 1",
        "outcome": {"kind": "declined", "reason": "The loan is above 25,000 pounds."},
    }

    index: Annotated[int, Meta(ge=0, le=99, description="The place on the panel, from 0.")]
    lender: str
    position: Position
    outcome: Answer


class WaterfallEnd(Fact, frozen=True, kw_only=True, rename="camel"):
    """No further lender is asked for now: one approved, or the panel is exhausted."""

    ORIGINS: ClassVar[Any] = APP
    EXAMPLE: ClassVar = {"exhausted": True}

    exhausted: bool


GROUPS: dict[str, tuple[type[Payload], ...]] = {
    "Project & contact": (
        RecordProjectFacts,
        RecordCustomerContact,
        GenerateCustomerLink,
        InstallerHandoffComplete,
    ),
    "Customer journey": (
        RecordEligibility,
        RecordProvisionalQuote,
        RecordEmailPreference,
        RecordPersonalFacts,
        RecordFinancialFacts,
        RecordVulnerabilityIndicators,
    ),
    "Disclosures and consents": (PresentDisclosure, AcknowledgeDisclosure, CaptureConsent),
    "Application": (SubmitApplication, AcceptCounterOffer, RefuseCounterOffer, SelectOffer),
    "Lifecycle": (Withdraw, CaseOutcome, CaseComplete),
}
TAXONOMY: tuple[type[Payload], ...] = (*chain(*GROUPS.values()), RequestDecision)

BROKER = Vocabulary("broker", [*TAXONOMY, WaterfallStep, WaterfallEnd])
