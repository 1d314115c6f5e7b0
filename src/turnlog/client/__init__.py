"""Readers of Turnlog streams: messages of the dialect `blocks` to whole blocks."""
