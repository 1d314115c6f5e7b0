"""Repair of text that UTF-8 cannot encode: no store and no socket can carry a lone surrogate."""


def replace_lone_surrogates(text: str) -> str:
    """Join surrogate pairs and replace each lone surrogate by U+FFFD, as browsers do."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
