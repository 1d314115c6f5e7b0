"""The stream-json output of a Claude Code process, parsed to events."""
