"""What the scripted guides understand: words in, the events they mean out; None if they mean none."""

import json
import re
from typing import Any, NamedTuple

YES = re.compile(r"\b(yes|yep|sure|ok(ay)?|fine|correct|understood|i (do|am|understand|have))\b", re.I)
NO = re.compile(r"\b(no|not|none|nothing|nope|never|isn't|don't|haven't)\b", re.I)
NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)\s*(k\b)?", re.I)
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(%|percent|kwp|kwh)", re.I)
EMAIL = re.compile(r"[^\s,;@]+@[^\s,;@]+\.\w+")
MOBILE = re.compile(r"\+?\d(?: ?\d){8,13}")
NAME = re.compile(r"\W*([^\W\d_][^\s,\d]*)(?: ([^\W\d_][^\s,\d]*))?")

SIZES = {"%": "depositPct", "percent": "depositPct", "kwp": "systemKwp", "kwh": "batteryKwh"}
ELIGIBILITY = {
    "isOver18": r"\b18\b|\bage\b",
    "isUkResident": r"\bresident|\buk\b",
    "isHomeowner": r"\bhome|\bown|\brent",
    "isEmployed": r"employ|\bjob\b|\bwork",
}
EMPLOYMENTS = {
    "self-employed": "Self-employed",
    "unemployed": "Unemployed",
    "employed": "Employed",
    "retired": "Retired",
}
INDICATORS = {
    "financial_difficulty": "debt|difficult|behind",
    "long_term_health": r"health|\bill|disab",
    "bereavement_recent": "died|death|bereave",
    "income_change": "income|redundan|lost my job",
    "english_not_first_language": "english|language",
    "support_before_signing": "support|help",
}


class Tag(NamedTuple):
    """An event, as a model says it and as the conversation tells it."""

    type: str
    data: dict[str, Any]

    def __str__(self) -> str:
        data = json.dumps(self.data, ensure_ascii=False).replace("'", "\\u0027")
        return f"<agent-event type=\"{self.type}\" data='{data}' />"


Meant = list[Tag] | None


def agrees(words: str) -> bool:
    """A yes without a no."""
    return bool(YES.search(words)) and not NO.search(words)


def numbers(words: str) -> list[float]:
    """The numbers in a text; 15k is 15,000."""
    return [float(digits.replace(",", "")) * (1000 if k else 1) for digits, k in NUMBER.findall(words)]


def only_by_button(_: str) -> Meant:
    """No words can bind the customer."""
    return None


def project(words: str) -> Meant:
    """A price, a deposit in percent or pounds, what is installed and how large it is."""
    sums = numbers(SIZE.sub("", words))
    if not sums:
        return None
    battery, car = re.search("batter", words, re.I), re.search(r"\b(ev|car)\b", words, re.I)
    spec = "panels_battery_ev" if battery and car else "panels_battery" if battery else "panels_only"
    pounds = dict(zip(("projectValue", "depositAmount"), sums, strict=False))
    sizes = {SIZES[unit.lower()]: float(size) for size, unit in SIZE.findall(words)}
    return [Tag("record_project_facts", {**pounds, **sizes, "productSpec": spec})]


def contact(words: str) -> Meant:
    """A name and a way to reach the customer, who then gets a link."""
    named, mobile, email = NAME.match(words), MOBILE.search(words), EMAIL.search(words)
    if not named or not (mobile or email):
        return None
    found = {"firstName": named[1], "lastName": named[2]}
    found |= {"mobile": mobile and mobile[0], "email": email and email[0]}
    known = {name: value for name, value in found.items() if value}
    return [
        Tag("record_customer_contact", known),
        Tag("generate_customer_link", {}),
        Tag("installer_handoff_complete", {}),
    ]


def understood(words: str) -> Meant:
    """The one disclosure that words may acknowledge."""
    return [Tag("acknowledge_disclosure", {"id": "service_status"})] if agrees(words) else None


def eligibility(words: str) -> Meant:
    """Yes to all four, or which of them is not so."""
    clauses = re.split(r"[,.;]|\bbut\b|\band\b", words, flags=re.I)
    denied = [
        clause for clause in clauses if NO.search(clause) or re.search(r"\brent|unemploy", clause, re.I)
    ]
    wrong = {name for name, said in ELIGIBILITY.items() for clause in denied if re.search(said, clause, re.I)}
    if not wrong and not agrees(words):
        return None
    return [Tag("record_eligibility", {name: name not in wrong for name in ELIGIBILITY})]


def term(words: str) -> Meant:
    """A number of months, or of years."""
    found = re.search(r"(\d{1,3})\s*(year)?", words, re.I)
    months = int(found[1]) * (12 if found[2] else 1) if found else 0
    return [Tag("record_provisional_quote", {"termMonths": months})] if 1 <= months <= 600 else None


def copy(words: str) -> Meant:
    """An address, a yes or a no."""
    email = EMAIL.search(words)
    if email:
        return [Tag("record_email_preference", {"wantsEmailCopy": True, "email": email[0]})]
    if not agrees(words) and not NO.search(words):
        return None
    return [Tag("record_email_preference", {"wantsEmailCopy": agrees(words)})]


def details(words: str) -> Meant:
    """A name, an employment, an income a year, and what goes out a month."""
    named, sums = re.match(r"\s*([^,\d]+?)\s*,", words), numbers(words)
    work = next((status for word, status in EMPLOYMENTS.items() if word in words.lower()), None)
    if not named or not work or not sums:
        return None
    money = dict(zip(("annualIncome", "monthlyOutgoings"), sums, strict=False))
    return [
        Tag("record_personal_facts", {"fullName": named[1]}),
        Tag("record_financial_facts", {"employmentStatus": work, **money}),
    ]


def vulnerability(words: str) -> Meant:
    """What was told; who says no was asked all the same."""
    found = [name for name, said in INDICATORS.items() if re.search(said, words, re.I)]
    note = {"note": words} if found or not NO.search(words) else {}
    return [Tag("record_vulnerability_indicators", {"indicators": found, **note})]


def decided(words: str) -> Meant:
    """The customer has decided on the page; words do not say what."""
    return [] if agrees(words) else None


def finished(words: str) -> Meant:
    """Nothing more is wanted."""
    return [Tag("case_complete", {})] if NO.search(words) else None
