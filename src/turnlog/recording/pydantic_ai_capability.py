"""Record a run of Pydantic AI that its own program has started. Imports the framework."""

from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults
from pydantic_ai.tools import RunContext

from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.pydantic_ai_runner import (
    CURRENT_WATCH,
    Watch,
    WatchCapability,
    build_results,
    list_questions,
    set_watch,
)
from turnlog.parse.foreign.pydantic_ai import PydanticAiTranslator


class TurnCapability(WatchCapability):
    """Reports the run that it is given to, and the runs inside it, to a recorded turn."""

    def __init__(self, output: PartOutput) -> None:
        self._output = output
        self._translator = PydanticAiTranslator(output.builder, output.root)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        if CURRENT_WATCH.get() is not None:
            return await super().wrap_run(ctx, handler=handler)
        with set_watch(Watch(self._output, self._translator, {})):
            return await super().wrap_run(ctx, handler=handler)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask people now, for the root too: the program that started the run does not pause it."""
        watch = CURRENT_WATCH.get()
        if watch is None or ctx.run_id is None:
            return None
        agent = watch.translator.agent_of(ctx.run_id)
        answers = await watch.output.ask(list_questions(agent, requests))
        return build_results(answers.__getitem__, agent.agent_id, requests)
