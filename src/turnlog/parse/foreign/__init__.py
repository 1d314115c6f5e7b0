"""Translators: what other agent frameworks report goes in, calls of an `AgentEventBuilder` come out.

Pure, never raise, import no framework. They read the framework's objects, or the same values from JSON.
"""
