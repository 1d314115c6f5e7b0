"""Record a turn of the Claude Agent SDK that its own program has started. Imports the framework."""

from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import TypeVar

from turnlog.adapters.claude_sdk_watch import ClaudeSdkWatch
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.runner import Finished

M = TypeVar("M")


class ClaudeSdkRecorder:
    """Records the messages that it passes on. `can_use_tool` is for the options: it asks people."""

    def __init__(self, output: PartOutput, set_end: Callable[[Finished], None]) -> None:
        self._watch = ClaudeSdkWatch(output)
        self._set_end = set_end
        self.can_use_tool = self._watch.can_use_tool

    async def watch(self, messages: AsyncIterable[M]) -> AsyncIterator[M]:
        """Yield the messages of `query` or of `ClaudeSDKClient.receive_response`. Each is in the log before.

        The turn ends as the last result says.
        """
        async for message in self._watch.watch(messages):
            end = self._watch.describe_end(None)
            if end is not None:
                self._set_end(end)
            yield message
