"""Events to bytes: how the log is said to each kind of reader.

`chunks` cuts a payload into JSON messages of a bounded size, `sse` writes and reads the frames that carry
them, and each dialect has a module of its own. Pure: what goes in decides what comes out, byte for byte.
"""
