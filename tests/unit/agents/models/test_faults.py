"""Exceptions of a provider in our words."""

from dataclasses import dataclass, field
from email.utils import formatdate
from time import time
from typing import Any

import pytest

from turnlog.agents.models.errors import (
    CODE_BY_STATUS,
    MAX_DETAIL_CHARS,
    MESSAGES,
    RETRIABLE_CODES,
    error_from_status,
    make_model_error,
    parse_retry_after_s,
    redact_detail,
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
    assert error_from_status(Failure(529, body)).code == "overloaded_error"
    assert error_from_status(Failure(200, body)).code == "api_error"
    assert error_from_status(Failure(422, body)).code == "invalid_request_error"


def test_every_status_has_a_sentence() -> None:
    assert set(CODE_BY_STATUS.values()) | RETRIABLE_CODES <= set(MESSAGES)
    assert make_model_error("something_new").message == "The model failed."


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
    said = make_model_error("invalid_request_error", detail).message
    assert "[hidden]" in said
    assert not any(word in said for word in ("AbC_9", "abcdef"))
    assert redact_detail("max_tokens: 9000 is more than the token limit; a monkey business") == (
        "max_tokens: 9000 is more than the token limit; a monkey business"
    )


def test_a_detail_is_one_line_and_bounded() -> None:
    assert redact_detail("a\n\n b\tc") == "a b c"
    assert len(redact_detail("x " * 1000)) == MAX_DETAIL_CHARS
    assert make_model_error("overloaded_error", "internal host 7").message == "The model is overloaded."


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
    assert parse_retry_after_s(headers) == seconds


def test_how_long_to_wait_until_a_date() -> None:
    wait = parse_retry_after_s({"retry-after": formatdate(time() + 60, usegmt=True)})
    assert wait is not None
    assert 55 < wait <= 60
