"""Agents that run in other processes: the server offers parts of turns, and workers run them."""
