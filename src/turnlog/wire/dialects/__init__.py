"""Dialects: pure projections of the log, one module each."""
