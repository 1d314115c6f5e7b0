"""The public modules of Turnlog: what applications import, and what `docs/api.md` describes."""

PUBLIC_MODULES = (
    "turnlog",
    "turnlog.adapters",
    "turnlog.agents",
    "turnlog.agents.remote",
    "turnlog.app",
    "turnlog.connection",
    "turnlog.events",
    "turnlog.events.view_nodes",
    "turnlog.errors",
    "turnlog.log",
    "turnlog.otel",
    "turnlog.parse",
    "turnlog.recording",
    "turnlog.server",
    "turnlog.state",
    "turnlog.team",
    "turnlog.testing",
    "turnlog.testing.runtimes",
    "turnlog.wire.dialects",
    "turnlog.wire.sse",
)
