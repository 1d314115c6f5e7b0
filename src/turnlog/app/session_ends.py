"""Close and delete sessions (protocol section 8.2).

A session is closed when nothing is open in it: what runs or waits is stopped first, so that every turn has
its end in the log. Its last event is a `session.close`, which names the member who closed it. Deleting closes
the session and erases its events, blobs, documents and members. The record stays, without content: its id is
never used again, and every route answers 404 for it.
"""

import asyncio
from contextlib import aclosing

from turnlog.app.membership import Membership
from turnlog.app.sessions import Sessions
from turnlog.errors import Conflict, Forbidden, NotFound, SessionClosed, Unavailable
from turnlog.events import CATALOG, Event, EventDraft, Scope, SessionClose, UiCommand
from turnlog.events.ui import Stop
from turnlog.ids import new_id

STOP_LIMIT_S = 30.0  # a tool that does not end by then holds the session open, and the caller tries again
DELETE_REASON = "The session is deleted."  # readers get it before the session is erased
CHECK_INTERVAL_S = 1.0  # of silence, after which the folds are looked at again
MAX_CLOSE_TRIES = 10  # a session that gets events all the time stays open, and the caller tries again


async def stop_and_close(sessions: Sessions, membership: Membership, reason: str | None = None) -> None:
    """Stop what is open, and close the session. Closing a closed session changes nothing.

    Raise `Forbidden` for a member without the right, and `Unavailable` if something does not stop in time.
    """
    if not membership.may_close:
        raise Forbidden("only the owner of a session may close it")
    if not membership.record.closed:
        await close_when_stopped(sessions, membership, reason)


async def delete_session(sessions: Sessions, membership: Membership) -> None:
    """Close a session and erase what it has. Raise `Forbidden` for a member without the right."""
    if not membership.may_delete:
        raise Forbidden("only the owner or the creator of a session may delete it")
    session_id = membership.session_id
    if not membership.record.closed:
        await close_when_stopped(sessions, membership, DELETE_REASON)
    sessions.forget(session_id)
    await sessions.log.erase(session_id)


def make_close_event(by: str, reason: str | None = None) -> Event:
    """Build the last event of a session that a principal closes."""
    draft = EventDraft(SessionClose(by=by, reason=reason), Scope(actor=by), "system")
    return draft.build(CATALOG, new_id("evt_"))


async def close_when_stopped(sessions: Sessions, membership: Membership, reason: str | None) -> None:
    """Stop what is open and append the last event. Raise `Unavailable` if the session does not stop."""
    event = make_close_event(membership.principal.name, reason)
    for _ in range(MAX_CLOSE_TRIES):
        await stop_everything(sessions, membership)
        # A message that arrives after this record was read must not be left without its turn: then the close
        # is refused, and what the message began is stopped too.
        record = await sessions.log.info(membership.session_id)
        if await has_open_work(sessions, membership):
            continue
        try:
            await sessions.log.close_session(
                membership.session_id, [event], expected_durable_count=record.durable_count
            )
        except Conflict:
            continue
        return
    raise Unavailable("the session gets new events while it is closed; try again")


async def stop_everything(sessions: Sessions, membership: Membership) -> None:
    if not await has_open_work(sessions, membership):
        return
    app = membership.app
    command = EventDraft(UiCommand(command=Stop()), Scope(actor=membership.principal.name), "ui")
    log = sessions.log
    sessions.runners.start()
    try:
        result = await log.append(
            membership.session_id, [command.build(app.catalog, new_id("evt_"))], wants_work=True
        )
    except SessionClosed:
        return

    pages = log.follow(membership.session_id, result.seqs[-1], idle_s=CHECK_INTERVAL_S)
    try:
        async with asyncio.timeout(STOP_LIMIT_S), aclosing(pages):
            async for _ in pages:
                if not await has_open_work(sessions, membership):
                    return
    except TimeoutError:
        raise Unavailable("something in the session does not stop; try again") from None


async def has_open_work(sessions: Sessions, membership: Membership) -> bool:
    """Return whether a turn runs, waits or is queued, in any channel."""
    try:
        tree = await sessions.tree(membership)
    except NotFound:
        return False
    return bool(tree.open or tree.queued_turns)
