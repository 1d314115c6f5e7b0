"""The vocabularies and dialects that this package brings: the core's, and the optional ones.

Core packages know their own types and dialects only. What composes a program, which is an application, a run,
the server or the command line, takes them from here and hands them on. An optional vocabulary has a line in
`VOCABULARIES`, and its dialects have one each in `DIALECTS`.
"""

from turnlog.events import CORE, Catalog
from turnlog.events.server import SERVER
from turnlog.team.events import TEAM
from turnlog.team.office import EARLIER_TYPES, Office, encode_heartbeat
from turnlog.wire.dialects.framing import Framing
from turnlog.wire.dialects.registry import CORE_DIALECTS, DialectDefinition, DialectRegistry
from turnlog.wire.durable_streams.events import STREAM

VOCABULARIES = (CORE, TEAM, STREAM, SERVER)
FULL_CATALOG = Catalog(*VOCABULARIES)
OFFICE = DialectDefinition(
    Office, Framing(encode_heartbeat=encode_heartbeat), EARLIER_TYPES, has_dense_ids=True
)
DIALECTS = DialectRegistry({**CORE_DIALECTS, "office": OFFICE})
