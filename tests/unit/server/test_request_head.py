"""The counts behind the bounds on request heads."""

from http import HTTPStatus

import pytest

from turnlog.server.request_head import (
    MAX_HEAD_BYTES,
    MAX_HEADER_FIELDS,
    MAX_URL_BYTES,
    RequestHead,
    RequestRefused,
    encode_refusal,
)


def test_head_bytes_up_to_the_limit_pass_and_one_more_is_refused() -> None:
    head = RequestHead()
    head.count_bytes(MAX_HEAD_BYTES)

    with pytest.raises(RequestRefused, match="the request head is larger") as refused:
        head.count_bytes(1)
    assert refused.value.status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def test_head_bytes_between_pieces_of_a_body_start_again_with_each_piece() -> None:
    head = RequestHead()
    head.complete([])

    for _ in range(3):
        head.count_bytes(MAX_HEAD_BYTES)
        head.count_body()
    head.count_bytes(MAX_HEAD_BYTES)
    with pytest.raises(RequestRefused, match="the trailer section is larger"):
        head.count_bytes(1)


def test_head_fields_up_to_the_limit_pass_and_one_more_is_refused() -> None:
    head = RequestHead()
    for _ in range(MAX_HEADER_FIELDS):
        head.count_field()

    with pytest.raises(RequestRefused, match="more than 128 header fields"):
        head.count_field()


def test_head_url_in_pieces_is_counted_as_a_whole() -> None:
    head = RequestHead()
    head.count_url(MAX_URL_BYTES)

    with pytest.raises(RequestRefused) as refused:
        head.count_url(1)
    assert refused.value.status == HTTPStatus.REQUEST_URI_TOO_LONG


def test_head_repeated_field_that_decides_is_refused_and_others_pass() -> None:
    RequestHead().complete([(b"accept", b"a"), (b"accept", b"b"), (b"host", b"x")])

    with pytest.raises(RequestRefused, match="the header host was sent more than once") as refused:
        RequestHead().complete([(b"host", b"x"), (b"host", b"x")])
    assert refused.value.status == HTTPStatus.BAD_REQUEST


def test_refusal_response_is_a_whole_answer_that_ends_its_connection() -> None:
    response = encode_refusal(RequestRefused(HTTPStatus.BAD_REQUEST, "no"))

    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"connection: close" in head
    assert body == b'{"error":"no"}'
    assert b"content-length: %d" % len(body) in head
