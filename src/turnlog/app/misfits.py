"""The check at the start of a server: do the events of recent sessions still fit the classes of their types?

A field that has another type now fits no old event of its class, and the state lacks all of them. A few
sessions show that. `turnlog verify --app` checks every session.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress

from turnlog.app.app import App
from turnlog.errors import TurnlogError
from turnlog.log import Log

MAX_SESSIONS = 20  # the first page of each is read, which is a fraction of a second before the first request

logger = logging.getLogger("turnlog.app")


async def warn_of_misfits(log: Log, apps: Mapping[str, App]) -> None:
    """Log a warning for each type whose stored events do not fit, in the sessions that were active last."""
    warned: set[str] = set()
    for _, record in await log.listing(None, limit=MAX_SESSIONS):
        app = apps.get(record.app)
        if app is None:
            continue
        with suppress(TurnlogError):  # damage is reported when its session is read
            page = await log.read(record.session_id, record.first - 1, replay_from=-1)
            stored = [(envelope.type, bytes(envelope.payload)) for envelope in page.envelopes()]
            for misfit in app.catalog.find_misfits(stored):
                if misfit.type not in warned:
                    logger.warning(
                        "%s: stored events %s do not fit their class any more, and states lack them (%s): "
                        "%s; `turnlog verify --app` finds them all",
                        app.name,
                        misfit.type,
                        record.session_id,
                        misfit.problem,
                    )
                warned.add(misfit.type)
