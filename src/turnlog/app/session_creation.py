"""Create sessions, and find the session that a principal has in an application without naming one."""

from hashlib import sha256

from turnlog.app.app import App
from turnlog.app.membership import Principal
from turnlog.errors import Conflict, NotFound
from turnlog.events import EventDraft, Payload, Scope, SessionMember, SessionTitle
from turnlog.ids import new_session_id
from turnlog.log import Log, SessionRecord


async def make_session(
    log: Log,
    app: App,
    principal: Principal,
    title: str | None = None,
    session_id: str | None = None,
    *,
    wants_work: bool = False,
) -> str:
    """Create a session with its creator as a member, and return its id. `wants_work`: it needs an owner now.

    The session, its member and its title are stored together: no reader sees a session without members.
    Creating the same `session_id` again changes nothing: the ids of its first events are derived from it, so
    they are appended once. Another application or title under the same id raises `Conflict`.
    """
    is_new = session_id is None
    session_id = session_id or new_session_id()
    payloads: list[Payload] = [SessionMember(principal=principal.name, roles=app.roles.creator)]
    if title:
        payloads.append(SessionTitle(title=title))
    scope = Scope(actor=principal.name)
    events = [
        EventDraft(payload, scope, "system").build(app.catalog, first_event_id(session_id, payload))
        for payload in payloads
    ]
    try:
        return await log.create(app.name, session_id, events, wants_work=wants_work)
    except Conflict:
        if is_new:
            raise
    await check_same_session(log, app, session_id, title)
    await log.append(session_id, events)  # the log has them, unless only the title is new
    return session_id


async def check_same_session(log: Log, app: App, session_id: str, title: str | None) -> None:
    """Raise `Conflict` if a session was created for another application, or with a title."""
    record = await log.info(session_id)
    title_event_id = first_event_id(session_id, SessionTitle(title="x"))
    has_title = bool(await log.find_events(session_id, [title_event_id]))
    if record.app != app.name or (has_title and not title):
        raise Conflict("another session was made under this key", record.last)


def first_event_id(session_id: str, payload: Payload) -> str:
    return "evt_" + sha256(f"first:{session_id}:{payload.TYPE}".encode()).hexdigest()[:40]


def default_session_key(principal: Principal, app: App) -> str:
    if app.shared_session:
        return f"shared:{app.name}"  # no key of a principal, which begins with a number
    return f"{len(principal.name)}:{principal.name}:{app.name}"


def default_session_id(key: str, number: int) -> str:
    """Return the id of the default session under a key: of the first one, or of a later one."""
    return "sess_" + sha256(f"{key}:{number}".encode()).hexdigest()[:32]


def alias_session_id(principal: Principal, app: App, alias: str) -> str:
    """Return the id of the session that a principal knows by a name of its own choice.

    The same alias of another principal is another session.
    """
    key = f"alias:{len(principal.name)}:{principal.name}:{app.name}:{alias}"
    return "sess_" + sha256(key.encode()).hexdigest()[:32]


async def find_newest_default(log: Log, key: str) -> tuple[int, SessionRecord | None]:
    """Return the number and record of the newest default session under a key; -1 and None without one.

    Numbers have no gaps, so doubling the step and then halving it finds the last of n sessions with about
    2 log n lookups.
    """
    last = -1
    last_record: SessionRecord | None = None
    step = 1
    while record := await find_session(log, default_session_id(key, last + step)):
        last += step
        last_record = record
        step *= 2
    while step > 1:
        step //= 2
        record = await find_session(log, default_session_id(key, last + step))
        if record is not None:
            last += step
            last_record = record
    return last, last_record


async def find_session(log: Log, session_id: str) -> SessionRecord | None:
    try:
        return await log.info(session_id)
    except NotFound:
        return None
