"""Whether a person only says hello: then a script introduces itself instead of working."""

import re

HELLO = r"hi|hello|hey|hallo|good (?:morning|day|evening)|thanks|thank you|help|what can you do"
GREETING = re.compile(rf"\W*(?:{HELLO})(?:,? (?:there|all|everyone|me|you))?\W*", re.I)


def is_greeting(text: str) -> bool:
    """Return True for a greeting or a question for help: no place and no subject to work on."""
    return GREETING.fullmatch(text) is not None
