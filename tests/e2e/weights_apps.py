"""The example `weights` for the tests over sockets: the day of document 002, little time to agree."""

from datetime import UTC, datetime

from turnlog_examples.weights import make_app

TODAY = datetime(2026, 1, 8, 18, 0, tzinfo=UTC)

app = make_app(now=lambda: TODAY)
slow = make_app(0.05, now=lambda: TODAY)
hasty = make_app(now=lambda: TODAY, expires_s=0.2)
