"""How a guest redeems a link: by the form of its page, which works without a script."""

from urllib.parse import parse_qs, urlencode, urlsplit

FORM = "application/x-www-form-urlencoded"
NAME = "Sarah"


def redemption(link: str, name: str = NAME, signed_in_as: str = "") -> tuple[str, bytes]:
    """Where the page of a link posts its form, as the link names the server, and the body of the form."""
    parts = urlsplit(link)
    [code] = parse_qs(parts.query)["code"]
    address = parts._replace(query="").geturl()
    return address, urlencode({"code": code, "name": name, "signed_in_as": signed_in_as}).encode()
