"""The session runtime: turn loop, driver, tool executor, approvals and appends."""
