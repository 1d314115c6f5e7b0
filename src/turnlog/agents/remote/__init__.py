"""Executors that run tools in another process, as clients of the server."""

from turnlog.agents.remote.executor import RemoteExecutor
from turnlog.agents.remote.pool import RemoteExecutorPool

__all__ = ["RemoteExecutor", "RemoteExecutorPool"]
