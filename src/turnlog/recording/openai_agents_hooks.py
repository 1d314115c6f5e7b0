"""Record a run of the OpenAI Agents SDK that its own program has started. Imports the framework.

The hooks report whole messages, results as they are ready, and hand-offs. Sub-agents with
`on_stream=adapters.watch_openai_agents` are recorded as they stream.
"""

from typing import Any

from agents import Handoff, ModelResponse, RunState
from agents.run_context import RunContextWrapper

from turnlog.adapters.openai_agents_runner import (
    CURRENT_WATCH,
    FAILURE_TEXT,
    RunWatch,
    WatchHooks,
    decide,
    list_approvals,
)
from turnlog.adapters.part_output import PartOutput
from turnlog.parse.foreign.openai_agents import OpenAiAgentsTranslator, describe_agent


class TurnHooks(WatchHooks):
    """Reports the run that they are given to, and the sub-agents inside it, to a recorded turn."""

    def __init__(self, output: PartOutput) -> None:
        super().__init__(start_watch(output))

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Any, response: ModelResponse) -> None:
        message = {
            "id": response.response_id,
            "output": response.output,
            "usage": response.usage,
            "model": describe_agent(agent).model,
        }
        await self._watch.output.report(self._watch.translator.complete_response, message)

    async def on_handoff(self, context: RunContextWrapper[Any], from_agent: Any, to_agent: Any) -> None:
        tool = Handoff.default_tool_name(to_agent)
        await self._watch.output.report(self._watch.translator.hand_off, to_agent, tool)

    async def answer(self, result: Any) -> RunState[Any]:
        """Ask people to approve the calls that a run waits for. Return the state to go on with."""
        output = self._watch.output
        questions = list_approvals(self._watch.translator, result.interruptions)
        answers = await output.ask(questions)
        state: RunState[Any] = result.to_state()
        for item, question in zip(state.get_interruptions(), questions, strict=True):
            decide(state, item, answers[question.agent.agent_id, question.call_id])
        # the run that goes on passes other objects for the calls that are open
        self._watch = start_watch(output)
        return state


def start_watch(output: PartOutput) -> RunWatch:
    """RunWatch the runs that the task of the caller starts. After the turn its output takes no reports."""
    watch = RunWatch(output, OpenAiAgentsTranslator(output.builder, output.root, FAILURE_TEXT))
    CURRENT_WATCH.set(watch)
    return watch
