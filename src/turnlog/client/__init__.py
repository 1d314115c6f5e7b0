"""Readers of Turnlog streams: messages of the dialect `blocks` become whole blocks."""
