"""The public modules of Turnlog: what applications import, and what `docs/api.md` describes."""

PUBLIC_MODULES = (
    "turnlog",
    "turnlog.adapters",
    "turnlog.agents",
    "turnlog.agents.remote",
    "turnlog.app",
    "turnlog.events",
    "turnlog.events.view_nodes",
    "turnlog.errors",
    "turnlog.log",
    "turnlog.parse",
    "turnlog.server",
    "turnlog.state",
    "turnlog.team",
    "turnlog.testing",
    "turnlog.testing.runtimes",
    "turnlog.wire.dialects",
    "turnlog.wire.sse",
)
