"""HTML pages of the server: invitations, links that cannot be used, errors.

Input: text. Output: one HTML document. Every text is escaped, and no page has a script. The content security
policy allows the style, by its hash, the icon, and forms that are sent to this server.
"""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from typing import NamedTuple

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from turnlog.app.app import GUEST
from turnlog.server.page_texts import DEFAULT_LANGUAGE, PageTexts, choose_texts

MAX_GUEST_NAME_CHARS = 64

PAGE_STYLE = """
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
PAGE_STYLE_HASH = b64encode(sha256(PAGE_STYLE.encode()).digest()).decode()
HTML_PAGE_HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{PAGE_STYLE_HASH}'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    # With `no-referrer` a browser sends the form with `Origin: null`, which the host check refuses. The
    # address of the page, which has the code of a link, is sent to this server only.
    "referrer-policy": "same-origin",
}


class Invitation(NamedTuple):
    """The content of an invitation page.

    `by` made the link, "" for the person who started the server. `signed_in_as` is the principal of the
    browser, "" if it is not signed in; `is_guest` if that is a guest of another session.
    """

    code: str
    by: str
    title: str
    roles: Sequence[str]
    signed_in_as: str = ""
    is_guest: bool = False


def accepts_html(scope: Scope) -> bool:
    return "text/html" in HTTPConnection(scope).headers.get("accept", "")


def invitation_page(scope: Scope, invitation: Invitation, problem: str = "", status: int = 200) -> Response:
    """Return the page with a form that redeems the link.

    The form sends the principal that the page shows: if another one has signed in since, the page is shown
    again.
    """
    texts = page_texts(scope)
    heading = texts.invited_by.format(by=escape(invitation.by)) if invitation.by else texts.invited
    names = [texts.guest if role == GUEST else role for role in invitation.roles]
    roles = texts.role_joiner.join(f"<strong>{escape(name)}</strong>" for name in names)
    if invitation.signed_in_as and not invitation.is_guest:
        form_html = user_form_html(invitation, texts)
    else:
        form_html = guest_form_html(invitation, problem, texts)
    to_html = texts.to_session.format(title=f"<strong>{escape(invitation.title)}</strong>", roles=roles)
    body = (
        f"<h1>{heading}</h1><p>{to_html}</p>"
        f'<form method=post action="{escape(get_root_path(scope))}/sign-in">'
        f'<input type=hidden name=code value="{escape(invitation.code)}">'
        f'<input type=hidden name=signed_in_as value="{escape(invitation.signed_in_as)}">'
        f"{form_html}"
    )
    return render_page(scope, texts.invited, body, status, texts.language)


def user_form_html(invitation: Invitation, texts: PageTexts) -> str:
    name = escape(invitation.signed_in_as)
    return (
        f"<p>{texts.signed_in_as.format(name=f'<strong>{name}</strong>')}</p>"
        f"<button>{texts.join_as.format(name=name)}</button></form>"
        f"<p class=soft>{texts.link_note}</p>"
    )


def guest_form_html(invitation: Invitation, problem: str, texts: PageTexts) -> str:
    error_html = f"<p class=wrong role=alert>{escape(problem)}</p>" if problem else ""
    note_html = f"<p>{texts.other_session}</p>" if invitation.is_guest else ""
    return (
        f"{note_html}<label>{texts.your_name}"
        f"<input name=name required maxlength={MAX_GUEST_NAME_CHARS} autocomplete=name autofocus></label>"
        f"{error_html}<button>{texts.join}</button></form>"
        f"<p class=soft>{texts.name_note}</p>"
    )


def own_link_page(scope: Scope) -> Response:
    body = (
        "<h1>You made this link</h1>"
        "<p>Send it to the person you invite. To see what that person sees, open it "
        f"in a private window.</p><p>Go {console_link(scope)}.</p>"
    )
    return render_page(scope, "You made this link", body, 403)


def already_member_page(scope: Scope, path: str) -> Response:
    """Return the page for a member who opens a link; `path` is where its session is."""
    body = (
        "<h1>You are a member already</h1><p>The link is still good for the person it was made for.</p>"
        f'<p>Go <a href="{escape(path)}">to the session</a>.</p>'
    )
    return render_page(scope, "You are a member already", body, 403)


def role_taken_page(scope: Scope, problem: str) -> Response:
    body = f"<h1>This link cannot be used</h1><p>{escape(problem.capitalize())}.</p>"
    return render_page(scope, "This link cannot be used", body, 409)


def unusable_link_page(scope: Scope) -> Response:
    """Return the page of a link that nothing is known of: a person was invited, or runs the server."""
    texts = page_texts(scope)
    new_link = texts.new_sign_in_link.format(command="<code>turnlog link</code>")
    back = texts.signed_in_before.format(link=f'<a href="{escape(get_root_path(scope))}/">', end="</a>")
    body = f"<h1>{texts.unusable}</h1><p>{texts.unusable_reason}</p><p>{new_link}</p><p>{back}</p>"
    return render_page(scope, texts.unusable, body, 403, texts.language)


def ended_invitation_page(scope: Scope, session_id: str) -> Response:
    """Return the page of an invitation that is over, with a way back for the person who used it."""
    texts = page_texts(scope)
    path = f"{get_root_path(scope)}/talk/{session_id}"
    back = texts.joined_before.format(link=f'<a href="{escape(path)}">', end="</a>")
    body = f"<h1>{texts.unusable}</h1><p>{texts.unusable_reason}</p><p>{back}</p>"
    return render_page(scope, texts.unusable, body, 403, texts.language)


def page_texts(scope: Scope) -> PageTexts:
    return choose_texts(HTTPConnection(scope).headers.get("accept-language", ""))


def error_page(scope: Scope, title: str, status: int) -> Response:
    body = f"<h1>{escape(title)}</h1><p>Go {console_link(scope)}.</p>"
    return render_page(scope, title, body, status)


def console_link(scope: Scope) -> str:
    return f'<a href="{escape(get_root_path(scope))}/">to the console</a>'


def render_page(
    scope: Scope, title: str, body: str, status: int, language: str = DEFAULT_LANGUAGE
) -> Response:
    """Return a document. `body` is HTML, `title` is text."""
    text = (
        f"<!doctype html><html lang={language}><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)} · Turnlog</title>"
        f'<link rel=icon href="{escape(get_root_path(scope))}/favicon.svg">'
        f"<style>{PAGE_STYLE}</style><main>{body}</main>"
    )
    return HTMLResponse(text, status, HTML_PAGE_HEADERS)


def get_root_path(scope: Scope) -> str:
    return str(scope.get("root_path", ""))
