"""Whatever a runtime reports, in whatever order: no exception, valid events, everything closed by a flush."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.agent_event_vectors import Runtime, assert_balanced

LABELS = st.sampled_from(["A", "B", "C", "D"])
CALLS = st.sampled_from(["c1", "c2", "c3", "has spaces", 7, None])
TEXTS = st.sampled_from(["", " ", "Hello", "\n", "\ud83d", "\ude00", "{", '{"a": 1}', "[1]"])
VALUES = st.sampled_from([None, "text", 1, [1], {"a": None}, "\ud800", float("nan")])
REASONS = st.sampled_from(["end_turn", "error", "cancelled", "timeout", "max_tokens"])
TOKENS = st.sampled_from([None, [1, 2], [-1, 2], [2**53 - 1, 2**53 - 1]])
INFO = st.fixed_dictionaries({"name": st.sampled_from(["Lead", "bad\nname", ""])})


def step(name: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.tuples(st.just(name), LABELS, *parts).map(list)


STEPS = st.one_of(
    step("start", INFO),
    step("child", LABELS, CALLS, st.booleans(), INFO),
    step("child", LABELS, CALLS, st.just(False), INFO),
    step("hand_off", LABELS, CALLS, VALUES, INFO),
    step("end", REASONS),
    step("begin_message"),
    step("text", TEXTS),
    step("text", TEXTS),
    step("think", TEXTS),
    step("sign", TEXTS),
    step("other", st.sampled_from(["file", ""]), VALUES),
    step("retract_message", TEXTS),
    step("start_call", TEXTS, CALLS),
    step("arguments", CALLS, TEXTS),
    step("call", st.just("t"), VALUES, CALLS),
    step("call", st.just("t"), VALUES, CALLS),
    step("progress", CALLS, TEXTS),
    step("result", CALLS, VALUES),
    step("result", CALLS, VALUES),
    step("fail", CALLS, TEXTS, TEXTS),
    step("await_page", st.lists(CALLS, max_size=3)),
    step("request_approval", CALLS, TEXTS),
    step("checkpoint", TEXTS, TEXTS, TEXTS),
    step("usage", TOKENS),
    step("cite", TEXTS),
    step("error", TEXTS, TEXTS),
)


@given(st.lists(STEPS, max_size=60), REASONS)
def test_any_report_is_balanced_after_a_flush(steps: list[list[Any]], reason: Any) -> None:
    runtime = Runtime({"p": "provider"})
    for label in "ABCD":
        runtime.report(["start", label, {"name": label}])
    for item in steps:
        runtime.report(item)
    drafts = runtime.builder.take_output()
    runtime.builder.flush(reason)
    assert_balanced(runtime, drafts + runtime.builder.take_output())


@given(st.lists(STEPS, max_size=40))
def test_draining_after_each_report_gives_the_same(steps: list[list[Any]]) -> None:
    whole = Runtime({})
    drained = Runtime({})
    drafts = []
    for item in [["start", label, {"name": label}] for label in "ABCD"] + steps:
        whole.report(item)
        drained.report(item)
        drafts += drained.builder.take_output()
    assert whole.builder.take_output() == drafts
