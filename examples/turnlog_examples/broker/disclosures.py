"""The three disclosures a customer must see: what each says, and how it has to be answered."""

from typing import Literal, NamedTuple

from turnlog_examples.broker.events import DisclosureId


class Disclosure(NamedTuple):
    """A text of which every word counts; it is shown as it stands here."""

    id: DisclosureId
    title: str
    body: str
    response_expectation: Literal["acknowledge", "grant_or_refuse", "affirm_or_deny"]


DISCLOSURES: dict[DisclosureId, Disclosure] = {
    disclosure.id: disclosure
    for disclosure in (
        Disclosure(
            "service_status",
            "Who we are and how we work",
            "We are a credit broker, not a lender. We ask a panel of three lenders, one after the other, and "
            "stop at the first that approves. We do not advise you, you pay us nothing, and the lender you "
            "choose pays us a commission that does not depend on the rate you get.",
            "acknowledge",
        ),
        Disclosure(
            "credit_search_consent",
            "Your consent to a credit search",
            "To decide, a lender looks at your record with a credit reference agency. Other lenders can see "
            "that search for up to two years. No lender is asked before you agree, and you may refuse.",
            "grant_or_refuse",
        ),
        Disclosure(
            "pre_contract_summary",
            "Your loan in short, before you sign",
            "You borrow the net amount of your quote and repay it in equal monthly payments over the term. "
            "The rate is fixed. You may repay early, and you may leave the agreement within 14 days of "
            "signing it. Payments you miss cost more and make later credit harder to get.",
            "affirm_or_deny",
        ),
    )
}
