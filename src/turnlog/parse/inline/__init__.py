"""Inline elements in model text: tags and markers."""
