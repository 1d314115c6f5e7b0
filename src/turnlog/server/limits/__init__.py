"""Limits: what one principal may take, what a request has cost, how many connections the server holds."""

from turnlog.server.limits.policy import Limits

__all__ = ["Limits"]
