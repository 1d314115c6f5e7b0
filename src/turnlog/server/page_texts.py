"""The texts of the pages that a guest sees before its conversation, by language.

Input: the header `Accept-Language`. Output: the texts of the language that it prefers among `TEXTS`, else the
English ones. Texts in braces are filled in by the page, escaped.
"""

from typing import NamedTuple

DEFAULT_LANGUAGE = "en"
MAX_HEADER_CHARS = 200  # a browser sends less; the rest does not count


class PageTexts(NamedTuple):
    language: str
    invited: str
    invited_by: str
    to_session: str
    role_joiner: str
    signed_in_as: str
    join_as: str
    join: str
    your_name: str
    name_note: str
    link_note: str
    other_session: str
    unusable: str
    unusable_reason: str
    new_sign_in_link: str
    signed_in_before: str
    guest: str
    joined_before: str
    name_missing: str
    name_too_long: str
    name_characters: str


ENGLISH = PageTexts(
    language="en",
    invited="You are invited",
    invited_by="{by} invites you",
    to_session="to {title} as {roles}.",
    role_joiner=" and ",
    signed_in_as="You are signed in as {name}.",
    join_as="Join as {name}",
    join="Join",
    your_name="Your name",
    name_note="Others in the session see this name. The link works once.",
    link_note="The link works once.",
    other_session="This browser is signed in as a guest of another session. Joining signs it out there.",
    unusable="This link cannot be used",
    unusable_reason="This link was used before or revoked, or it is too old. Ask for a new one.",
    new_sign_in_link="If you run the server, {command} prints a new link to sign in.",
    signed_in_before="If the link has signed you in before, go {link}to the console{end}.",
    guest="guest",
    joined_before="Have you joined before? Go {link}to the conversation{end}.",
    name_missing="Please enter your name.",
    name_too_long="Please use a shorter name.",
    name_characters="Please use letters, digits, spaces and signs.",
)

GERMAN = PageTexts(
    language="de",
    invited="Sie sind eingeladen",
    invited_by="{by} lädt Sie ein",
    to_session="zu {title} als {roles}.",
    role_joiner=" und ",
    signed_in_as="Sie sind als {name} angemeldet.",
    join_as="Als {name} teilnehmen",
    join="Teilnehmen",
    your_name="Ihr Name",
    name_note="Andere in der Unterhaltung sehen diesen Namen. Der Link gilt einmal.",
    link_note="Der Link gilt einmal.",
    other_session="Dieser Browser gehört einem Gast einer anderen Unterhaltung. Dort wird er abgemeldet.",
    unusable="Dieser Link gilt nicht mehr",
    unusable_reason="Er wurde schon benutzt oder widerrufen, oder er ist zu alt. Bitten Sie um einen neuen.",
    new_sign_in_link="Wenn Sie den Server betreiben: {command} gibt einen neuen Link zur Anmeldung aus.",
    signed_in_before="Wenn der Link Sie schon angemeldet hat: weiter {link}zur Konsole{end}.",
    guest="Gast",
    joined_before="Haben Sie schon teilgenommen? Weiter {link}zur Unterhaltung{end}.",
    name_missing="Bitte geben Sie Ihren Namen ein.",
    name_too_long="Bitte nehmen Sie einen kürzeren Namen.",
    name_characters="Bitte nehmen Sie Buchstaben, Ziffern, Leerzeichen und Zeichen.",
)

TEXTS = {texts.language: texts for texts in (ENGLISH, GERMAN)}


def choose_texts(accept_language: str) -> PageTexts:
    """Return the texts of the first known language, by weight and then by order."""
    best = DEFAULT_LANGUAGE
    best_weight = 0.0
    for item in accept_language[:MAX_HEADER_CHARS].split(","):
        tag, _, weight_text = item.partition(";")
        language = tag.strip().partition("-")[0].lower()
        weight = parse_weight(weight_text)
        if language in TEXTS and weight > best_weight:
            best, best_weight = language, weight
    return TEXTS[best]


def parse_weight(text: str) -> float:
    """Return the weight of `q=0.8`; 1 without one, and 0 for anything else."""
    if not text.strip():
        return 1.0
    name, _, value = text.strip().partition("=")
    try:
        weight = float(value) if name.strip().lower() == "q" else 0.0
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
