"""The runners of sessions: pool, watches, turn loop, tool executor, approvals and appends."""
