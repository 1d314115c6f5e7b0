"""Exceptions of a provider in our words."""

from dataclasses import dataclass, field
from email.utils import formatdate
from time import time
from typing import Any

import pytest

from turnlog.agents.models.errors import (
    DETAIL_CHARS,
    RETRIABLE,
    SENTENCES,
    STATUS,
    clean,
    fault,
    retry_after_s,
    status_fault,
)


@dataclass
class Answer:
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Failure:
    """What the SDK knows of a failed request."""

    status_code: int
    body: Any = None
    response: Answer = field(default_factory=Answer)


@pytest.mark.parametrize(
    "body", [None, "busy", [], {}, {"error": None}, {"error": {}}, {"error": {"type": "odd"}}]
)
def test_a_body_in_another_form_leaves_the_status(body: Any) -> None:
    assert status_fault(Failure(529, body)).code == "overloaded_error"
    assert status_fault(Failure(200, body)).code == "api_error"
    assert status_fault(Failure(422, body)).code == "invalid_request_error"


def test_every_status_has_a_sentence() -> None:
    assert set(STATUS.values()) | RETRIABLE <= set(SENTENCES)
    assert fault("something_new").message == "The model failed."


@pytest.mark.parametrize(
    "detail",
    [
        "bad key sk-ant-api03-AbC_9-x",
        "Authorization: Bearer abcdef.123456",
        "api_key=abcdef123",
        "token: abcdefghi7",
    ],
)
def test_what_looks_like_a_key_is_hidden(detail: str) -> None:
    said = fault("invalid_request_error", detail).message
    assert "[hidden]" in said
    assert not any(word in said for word in ("AbC_9", "abcdef"))
    assert clean("max_tokens: 9000 is more than the token limit; a monkey business") == (
        "max_tokens: 9000 is more than the token limit; a monkey business"
    )


def test_a_detail_is_one_line_and_bounded() -> None:
    assert clean("a\n\n b\tc") == "a b c"
    assert len(clean("x " * 1000)) == DETAIL_CHARS
    assert fault("overloaded_error", "internal host 7").message == "The model is overloaded."


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "1.2.3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "3"}, 1.5),
        ({"retry-after-ms": "-5"}, 0.0),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after-ms": "inf"}, None),
        ({"retry-after": formatdate(0, usegmt=True)}, 0.0),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_how_long_to_wait_until_a_date() -> None:
    wait = retry_after_s({"retry-after": formatdate(time() + 60, usegmt=True)})
    assert wait is not None
    assert 55 < wait <= 60
