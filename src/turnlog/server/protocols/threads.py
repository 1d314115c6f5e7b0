"""Threads and chats of other protocols as sessions: a client's own id is an alias of the caller.

The same id of another principal names another session. An id that begins with `sess_` is that of a session,
for members who came to it in another way.
"""

import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from starlette.requests import Request

from turnlog.app import App, ClientEvent, Membership, Sessions
from turnlog.errors import BadInput, NotFound
from turnlog.log import Log
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.prompt_content import CheckedPrompt, store_prompt
from turnlog.server.protocols.client_input import ToolBody
from turnlog.server.session_access import SessionAccess
from turnlog.state.tree import OpenCall

SESSION_PREFIX = "sess_"


async def find_thread(access: SessionAccess, request: Request, app: App, thread_id: str) -> Membership | None:
    """Return the caller's membership in a thread; None if there is no such thread."""
    sessions = access.sessions
    principal = get_identity(request.scope).principal
    if not thread_id.startswith(SESSION_PREFIX):
        return await sessions.find_by_alias(principal, thread_id, app.name)
    membership = await sessions.get_membership(principal, thread_id)
    if membership.app is not app:
        raise NotFound(f"no session {thread_id[:80]}")
    return membership


async def open_thread(access: SessionAccess, request: Request, app: App, thread_id: str) -> Membership:
    """Return the caller's membership in a thread, which is created if there is none."""
    membership = await find_thread(access, request, app, thread_id)
    if membership is not None:
        return membership
    creator = get_session_creator(request.scope)
    access.rate_limiter.consume_session(creator, time.monotonic())
    return await access.sessions.create_with_alias(creator, thread_id, app.name)


def find_served_app(access: SessionAccess, request: Request) -> App:
    """Return the application that a path names. Raise `NotFound` if it is not served."""
    name = request.path_params["app"]
    try:
        return access.sessions.get_app(name)
    except BadInput:
        raise NotFound(f"no application {name[:80]}") from None


def make_run_event_id(membership: Membership, protocol: str, key: str) -> str:
    """Return the id of the message that a client sends under a key: the same however often it is sent."""
    principal = membership.principal.name
    text = f"{protocol}:{membership.session_id}:{len(principal)}:{principal}:{key}"
    return "evt_run_" + sha256(text.encode()).hexdigest()[:40]


async def make_message_event(
    log: Log,
    membership: Membership,
    event_id: str,
    prompt: CheckedPrompt,
    tools: Sequence[ToolBody],
    client_message_id: str | None,
) -> ClientEvent:
    """Build the `ui.message` of a prompt, whose files become blobs of the session."""
    content = await store_prompt(log, membership.session_id, prompt)
    payload: dict[str, Any] = {"text": prompt.text}
    if content:
        payload["content"] = msgspec.to_builtins(content)
    if client_message_id is not None:
        payload["client_message_id"] = client_message_id
    # Some runtimes, such as a Claude Code process, have only their own tools.
    if tools and membership.app.runtime.takes_client_tools:
        payload["tools"] = [tool.to_payload() for tool in tools]
    return ClientEvent("ui.message", payload, event_id)


async def list_waiting_calls(sessions: Sessions, membership: Membership) -> dict[str, OpenCall]:
    """Return the calls that wait for an answer of this member, by id."""
    tree = await sessions.tree(membership)
    calls: dict[str, OpenCall] = {}
    for invocation in tree.open.values():
        if not membership.may_see(invocation.scope.channel):
            continue
        for call_id, call in invocation.calls.items():
            if call.awaits_page or call.approval_request is not None:
                calls[call_id] = call
    return calls
