"""When a test calls a wait a hang.

These are guards, never measures: each is far above what a busy machine that is ten times slower needs, and a
wait that succeeds does not cost any of it. What measures time is in `make bench` and `make soak`.
"""

HANG_S = 120.0
HANG_MS = 120_000
