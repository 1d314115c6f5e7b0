"""An application whose server waits only a moment for a silent recorder."""

from turnlog.app import recordings

recordings.LEASE_S = 2.0

from tests.e2e.connect_apps import asking  # noqa: E402

recorded = asking
