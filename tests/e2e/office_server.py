"""`turnlog serve` with a heart that beats often: `python -m tests.e2e.office_server serve ...`."""

import importlib

from turnlog.cli import main

BEAT_S = 0.2

if __name__ == "__main__":
    importlib.import_module("turnlog.server.streaming.event_stream").__dict__["HEARTBEAT_INTERVAL_S"] = BEAT_S
    main()
