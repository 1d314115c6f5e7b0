"""Plain pages of the server: an invitation, a link that cannot be used, an address that is not there.

Text comes in, one HTML document goes out. Every text is escaped, and no page has a script. The style is that
of the console; the policy of a page allows this style, by its hash, and the icon, and nothing else. A form
may be sent to this server only.
"""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from typing import NamedTuple

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

NAME_CHARS = 64  # of a guest's name

STYLE = """
:root { color-scheme: light dark;
  --back: light-dark(#f6f7f9, #14161a); --raised: light-dark(#ffffff, #20242b);
  --line: light-dark(#d8dce3, #353b45); --text: light-dark(#1b1f26, #e6e9ee);
  --soft: light-dark(#586172, #a0a9b8); --strong: light-dark(#1b55c0, #8cb4ff);
  --on-strong: light-dark(#ffffff, #10131a); --bad: light-dark(#b3261e, #ff8f87); }
*, ::before, ::after { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1rem;
  background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { width: 100%; max-width: 26rem; padding: 2rem; background: var(--raised);
  border: 1px solid var(--line); border-radius: .6rem; overflow-wrap: anywhere; }
h1 { margin: 0 0 .6rem; font-size: 1.25rem; }
p { margin: .6rem 0; }
a { color: var(--strong); }
label { display: block; margin-top: 1rem; }
input { display: block; width: 100%; margin-top: .25rem; padding: .4rem .6rem; font: inherit; color: inherit;
  background: var(--raised); border: 1px solid var(--line); border-radius: .4rem; }
button { margin-top: 1rem; padding: .4rem 1rem; font: inherit; cursor: pointer; color: var(--on-strong);
  background: var(--strong); border: 1px solid var(--strong); border-radius: .4rem; }
:focus-visible { outline: 2px solid var(--strong); outline-offset: 2px; }
.soft { color: var(--soft); font-size: .85rem; }
.wrong { color: var(--bad); }
"""
STYLE_HASH = b64encode(sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    # With `no-referrer` a browser sends its form with `Origin: null`, which the guard refuses. The address of
    # the page, which holds the code of a link, goes to this server alone.
    "referrer-policy": "same-origin",
}


class Invitation(NamedTuple):
    """What a person is asked before it comes in. `by` is who made the link, "" for who started the server.

    `signed_in_as` is the principal of the browser's cookie, "" without one; a guest leaves its other session.
    """

    code: str
    by: str
    title: str
    roles: Sequence[str]
    signed_in_as: str = ""
    is_guest: bool = False


def wants_page(scope: Scope) -> bool:
    """Whether a person looks at the answer: a browser that opens an address accepts HTML."""
    return "text/html" in HTTPConnection(scope).headers.get("accept", "")


def invitation_page(scope: Scope, invitation: Invitation, problem: str = "", status: int = 200) -> Response:
    """Who invites whom to what as which role, and a form that redeems the link.

    The form says as whom the page was shown: who has signed in since is asked again.
    """
    host = f"{escape(invitation.by)} invites you" if invitation.by else "You are invited"
    roles = " and ".join(f"<strong>{escape(role)}</strong>" for role in invitation.roles)
    wrong = f"<p class=wrong role=alert>{escape(problem)}</p>" if problem else ""
    body = (
        f"<h1>{host}</h1><p>to <strong>{escape(invitation.title)}</strong> as {roles}.</p>"
        f'<form method=post action="{escape(root_of(scope))}/sign-in">'
        f'<input type=hidden name=code value="{escape(invitation.code)}">'
        f'<input type=hidden name=signed_in_as value="{escape(invitation.signed_in_as)}">'
        f"{as_oneself(invitation) if is_person(invitation) else as_guest(invitation, wrong)}"
    )
    return page(scope, "You are invited", body, status)


def is_person(invitation: Invitation) -> bool:
    """Whether who is asked is signed in, and not as a guest."""
    return bool(invitation.signed_in_as) and not invitation.is_guest


def as_oneself(invitation: Invitation) -> str:
    """The rest of the form for who is signed in: there is nothing to fill in."""
    name = escape(invitation.signed_in_as)
    return (
        f"<p>You are signed in as <strong>{name}</strong>.</p><button>Join as {name}</button></form>"
        "<p class=soft>The link works once.</p>"
    )


def as_guest(invitation: Invitation, wrong: str) -> str:
    """The rest of the form for a guest; `wrong` is HTML."""
    leaves = (
        "<p>This browser is signed in as a guest of another session. Coming in signs it out there.</p>"
        if invitation.is_guest
        else ""
    )
    return (
        f"{leaves}<label>Your name"
        f"<input name=name required maxlength={NAME_CHARS} autocomplete=name autofocus></label>"
        f"{wrong}<button>Come in</button></form>"
        "<p class=soft>Others in the session see this name. The link works once.</p>"
    )


def own_link_page(scope: Scope) -> Response:
    """A link in the browser of the person who made it."""
    body = (
        "<h1>You made this link</h1>"
        "<p>Send it to the person you invite. To see what that person sees, open it "
        f"in a private window.</p><p>Go {console_link(scope)}.</p>"
    )
    return page(scope, "You made this link", body, 403)


def member_page(scope: Scope, session_id: str) -> Response:
    """A link to a session in which who opens it is a member already."""
    body = (
        "<h1>You are a member already</h1><p>The link is still good for the person it was made for.</p>"
        f'<p>Go <a href="{escape(root_of(scope))}/?session={escape(session_id)}">to the session</a>.</p>'
    )
    return page(scope, "You are a member already", body, 403)


def taken_page(scope: Scope, problem: str) -> Response:
    """A link for a role that another person has by now."""
    body = f"<h1>This link cannot be used</h1><p>{escape(problem.capitalize())}.</p>"
    return page(scope, "This link cannot be used", body, 409)


def used_page(scope: Scope) -> Response:
    """A link that was redeemed, is too old, or leads to a session that is closed or gone."""
    body = (
        "<h1>This link cannot be used</h1>"
        "<p>This link was used before or revoked, or it is too old. Ask for a new one; "
        "on the machine of the server, "
        "<code>turnlog link</code> prints one.</p>"
        f"<p>If it has signed you in, go on {console_link(scope)}.</p>"
    )
    return page(scope, "This link cannot be used", body, 403)


def problem_page(scope: Scope, title: str, status: int) -> Response:
    """An address that is not there, or that needs a sign-in."""
    body = f"<h1>{escape(title)}</h1><p>Go {console_link(scope)}.</p>"
    return page(scope, title, body, status)


def console_link(scope: Scope) -> str:
    return f'<a href="{escape(root_of(scope))}/">to the console</a>'


def page(scope: Scope, title: str, body: str, status: int) -> Response:
    """A whole document; `body` is HTML."""
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)} · Turnlog</title>"
        f'<link rel=icon href="{escape(root_of(scope))}/favicon.svg">'
        f"<style>{STYLE}</style><main>{body}</main>"
    )
    return HTMLResponse(text, status, HEADERS)


def root_of(scope: Scope) -> str:
    """What the application is mounted at."""
    return str(scope.get("root_path", ""))
