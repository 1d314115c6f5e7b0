"""Events to bytes, for each kind of reader.

`chunks` splits a payload into JSON messages of a bounded size, `sse` writes and reads the frames that carry
them, `cursor` their ids, and `dialects` has one module for each format. Pure: the same input gives the same
bytes.
"""
