"""One reply of a model, part by part, as events. Pure: ids come in.

Prose streams out as a text block without its tags. The application events found in a block are appended in
one batch with the block's end, so that they stand or fall with it. Tool calls come when the message is
complete.
"""

from collections.abc import Callable

from turnlog.agents.agent import Agent
from turnlog.agents.models import Done, Part, Text
from turnlog.events import (
    AssistantMessage,
    BlockDelta,
    BlockEnd,
    BlockStart,
    ParseReject,
    Payload,
    ToolCall,
    Usage,
    Vocabulary,
)
from turnlog.ids import Prefix
from turnlog.parse.tags import AgentStreamParser, Parsed

NO_VOCABULARY = Vocabulary("none", [])  # an application without events: every tag is refused, none vanishes


class Reply:
    """The state of a reply: the open block, and what waits for its end."""

    def __init__(self, agent: Agent, vocabulary: Vocabulary | None, new_id: Callable[[Prefix], str]) -> None:
        self._agent = agent
        self._new_id = new_id
        self._parser = AgentStreamParser(vocabulary or NO_VOCABULARY)
        self._block_id: str | None = None
        self._text: list[str] = []
        self._found: list[Payload] = []
        self.calls: list[ToolCall] = []
        self.usage = Usage(input_tokens=0, output_tokens=0)

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._text)

    def feed(self, part: Part) -> list[Payload]:
        """The events of one part that can be said at once."""
        if isinstance(part, Text):
            return self._say(self._parser.feed(part.text))
        if isinstance(part, Done):
            self.usage = part.usage
            return []
        executor = self._agent.executor(part.tool)
        self.calls.append(
            ToolCall(call_id=self._new_id("call_"), tool=part.tool, args=part.args, executor=executor)
        )
        return []

    def finish(self) -> list[Payload]:
        """The batch that ends the message: the block with its twin and events, then the calls."""
        said = self._say(self._parser.flush())
        if self._block_id is not None:
            said.append(BlockEnd(block_id=self._block_id, status="complete"))
            said.append(AssistantMessage(text=self.text, block_id=self._block_id))
        return [*said, *self._found, *self.calls]

    def abort(self) -> list[Payload]:
        """What ends a message that cannot be completed; the events found in it are void, refusals stay."""
        rejects: list[Payload] = [found for found in self._found if isinstance(found, ParseReject)]
        if self._block_id is None:
            return rejects
        return [BlockEnd(block_id=self._block_id, status="aborted", text=self.text), *rejects]

    def _say(self, parsed: Parsed) -> list[Payload]:
        self._found += [event.payload for event in parsed.events if event.payload is not None]
        self._found += parsed.rejects
        text = parsed.display_text if self._block_id else parsed.display_text.lstrip()
        if not text:
            return []
        said: list[Payload] = []
        if self._block_id is None:
            self._block_id = self._new_id("blk_")
            said.append(BlockStart(block_id=self._block_id, kind="text"))
        self._text.append(text)
        said.append(BlockDelta(block_id=self._block_id, text=text))
        return said
