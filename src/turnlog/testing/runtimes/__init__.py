"""The contract of a runtime, as numbered tests for authors of adapters. With pytest:

    @pytest.mark.parametrize("contract", contracts_for(MyFramework()), ids=str)
    def test_contract(contract: RuntimeContract) -> None:
        contract.check(MyFramework())

A `RuntimeUnderTest` makes an agent of its framework from an `AgentScript`: the model plays the script, the
tools and sub-agents are those of the script. Each contract runs turns in a log, and then checks what every
log must keep (`log_laws`), and that the texts in the log are those that the models said. A contract about a
feature that a framework does not have is left out. Numbers are stable.
"""

from collections.abc import Awaitable, Callable, Iterable

from turnlog.testing.runtimes import answering, ending, files, talking
from turnlog.testing.runtimes.harness import (
    IMPLIED_FEATURES,
    Feature,
    RuntimeContract,
    RuntimeUnderTest,
)
from turnlog.testing.runtimes.scripts import (
    AgentScript,
    CallAgent,
    CallTool,
    HandOff,
    HistoryItem,
    ScriptInput,
    ScriptRecord,
    ScriptReply,
    ScriptTool,
)

__all__ = [
    "RUNTIME_CONTRACTS",
    "AgentScript",
    "CallAgent",
    "CallTool",
    "Feature",
    "HandOff",
    "HistoryItem",
    "RuntimeContract",
    "RuntimeUnderTest",
    "ScriptInput",
    "ScriptRecord",
    "ScriptReply",
    "ScriptTool",
    "contracts_for",
]


def number_runtime_contracts(
    first: int, runs: Iterable[tuple[Callable[[RuntimeUnderTest], Awaitable[None]], set[Feature]]]
) -> list[RuntimeContract]:
    return [
        RuntimeContract(number, run.__doc__ or "", getattr(run, "__name__", ""), run, frozenset(features))
        for number, (run, features) in enumerate(runs, first)
    ]


RUNTIME_CONTRACTS = number_runtime_contracts(
    301,
    [
        (talking.text, set()),
        (talking.thinking, {"thinking"}),
        (talking.one_tool, set()),
        (talking.parallel_tools, set()),
        (talking.failing_tool, set()),
        (talking.sub_agent, {"sub_agents"}),
        (talking.sub_agents_with_equal_call_ids, {"sub_agents"}),
        (talking.three_levels, {"sub_agents"}),
        (talking.hand_off, {"hand_offs"}),
        (talking.structured_output, {"structured_output"}),
        (talking.usage_per_completion, {"completion_usage"}),
        (talking.next_turn_remembers, set()),
        (ending.model_error, set()),
        (ending.error_in_sub_agent, {"sub_agents"}),
        (ending.stop_in_text, set()),
        (ending.stop_in_tool, set()),
        (ending.turn_limit, set()),
        (ending.step_limit, {"step_limit"}),
        (ending.messages_in_order, set()),
        (answering.approve, {"process_approvals"}),
        (answering.deny, {"process_approvals"}),
        (answering.answer_twice, {"process_approvals"}),
        (answering.approve_after_restart, {"approvals"}),
        (answering.partial_answers, {"process_approvals"}),
        (answering.message_instead_of_answer, {"approvals"}),
        (answering.stop_while_waiting, {"process_approvals"}),
        (answering.two_questions_in_a_row, {"approvals"}),
        (answering.page_call_after_restart, {"page_calls"}),
        (answering.nested_approval_after_restart, {"nested_approvals"}),
        (answering.message_instead_of_nested_answer, {"inner_approvals"}),
        (answering.inner_approval, {"inner_approvals"}),
        (answering.message_while_process_waits, {"process_approvals"}),
        (answering.two_questions_to_one_process, {"process_approvals"}),
        (answering.restart_of_waiting_process, {"process_approvals"}),
        (files.file_of_message, {"files"}),
        (files.file_of_message_instead_of_answer, {"files", "single_approvals"}),
        (files.file_while_agent_waits, {"files", "single_approvals"}),
        (answering.single_approval_after_restart, {"single_approvals"}),
        (answering.message_instead_of_single_answer, {"single_approvals"}),
    ],
)


def contracts_for(runtime: RuntimeUnderTest) -> list[RuntimeContract]:
    """Return the contracts about features that a runtime has."""
    features = set(runtime.features)
    for feature in runtime.features:
        features |= IMPLIED_FEATURES.get(feature, frozenset())
    return [contract for contract in RUNTIME_CONTRACTS if contract.features <= features]
