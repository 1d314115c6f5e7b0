"""What a node of the tests has set otherwise than a server in use: short times, and a name of its own.

`prepare` is called in the process of the node, before the command. A control switches a defence off.
"""

import os
from collections.abc import Callable, Mapping
from functools import partialmethod
from typing import Any

from tests.cluster.apps import NODE_VARIABLE
from turnlog.agents.runtime.session_writer import SessionWriter
from turnlog.app import Sessions
from turnlog.log import log, reach
from turnlog.log.leases import Lease
from turnlog.log.log_leases import LogLeases
from turnlog.log.postgres.store import PostgresStore

LEASE_VARIABLE = "TURNLOG_TEST_LEASE_S"
CONTROL_VARIABLE = "TURNLOG_TEST_CONTROL"
CLAIMS_PER_LEASE = 12  # as many as with the default times
SILENCE_VARIABLE = "TURNLOG_TEST_SILENCE_S"
PATIENCE_VARIABLE = "TURNLOG_TEST_PATIENCE_S"
QUIET_VARIABLE = "TURNLOG_TEST_QUIET_S"


async def confirm_nothing(leases: LogLeases, lease: Lease) -> None:
    pass


def drop_confirmation() -> None:
    LogLeases.confirm = confirm_nothing  # type: ignore[method-assign,assignment]


def drop_fence() -> None:
    """Append without the fence of the lease."""
    make_writer = SessionWriter.__init__

    def make_writer_without_fence(writer: SessionWriter, *args: Any) -> None:
        make_writer(writer, *args)
        writer._fence = None  # type: ignore[assignment]

    SessionWriter.__init__ = make_writer_without_fence  # type: ignore[method-assign,assignment]


def drop_cut() -> None:
    """Wait for an engine that does not answer, also while the log is being closed."""
    PostgresStore._cut_if_silent = lambda store: None  # type: ignore[method-assign,assignment]


CONTROLS: Mapping[str, Callable[[], None]] = {
    "": lambda: None,
    "without confirmation": drop_confirmation,
    "without fence": drop_fence,
    "without cut": drop_cut,
}


def prepare() -> None:
    lease_s = float(os.environ[LEASE_VARIABLE])
    defaults = PostgresStore.__init__.__kwdefaults__
    assert defaults is not None
    defaults["lease_s"] = lease_s
    defaults["node"] = os.environ[NODE_VARIABLE]
    defaults["patience_s"] = float(os.environ[PATIENCE_VARIABLE])
    quiet_s = float(os.environ[QUIET_VARIABLE])
    Sessions.__init__ = partialmethod(Sessions.__init__, quiet_s=quiet_s)  # type: ignore[assignment,method-assign]
    log.CLAIM_POLL_S = lease_s / CLAIMS_PER_LEASE
    reach.MAX_SILENCE_S = float(os.environ[SILENCE_VARIABLE])
    reach.PING_INTERVAL_S = reach.MAX_SILENCE_S / 5
    CONTROLS[os.environ.get(CONTROL_VARIABLE, "")]()
