"""Run a part in a task of its own: the code of a framework may ignore a cancellation, or cancel itself.

The runtime of a session and the workers of other processes share it.
"""

import asyncio
from collections.abc import Callable

from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.runner import AgentRunner, Finished, Part, Paused

PartTask = asyncio.Task[Finished | Paused]


async def run_foreign_code(
    runner: AgentRunner,
    part: Part,
    output: PartOutput,
    grace_s: float,
    on_hung: Callable[[AgentRunner, PartTask], None],
) -> Finished | Paused:
    """Run a part. If this is cancelled, cancel the runner and wait up to `grace_s` for its end.

    `on_hung` gets a task that has not ended by then. Raise RuntimeError if the framework cancels itself.
    """
    work = asyncio.create_task(runner.run(part, output))
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait({work}, timeout=grace_s)
        if work.done():
            _ = work.cancelled() or work.exception()  # retrieved: the part is over whatever it raised
        else:
            on_hung(runner, work)
        raise
    if work.cancelled():
        # without an error the turn would stay open
        raise RuntimeError(f"{runner.name} was cancelled from inside")
    return work.result()
