"""Executors that run tools in another process, as clients of the server."""
