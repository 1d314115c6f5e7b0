"""A Claude Code process as the agent of a session."""
