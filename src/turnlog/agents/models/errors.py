"""What went wrong with a provider, in our words: an exception of its SDK in, a `ModelFault` out.

A sentence can be shown to users. The provider's own words are added only when it refused a request, because
nothing else says why; what looks like a key is taken out of them. Whether to ask again follows from the
error's type, which also a stream that began well can carry, or from the status.
"""

import math
import re
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from turnlog.agents.models.model import ModelError

MAX_DETAIL_CHARS = 300
SECRET_PATTERN = re.compile(
    r"(?i)sk-[\w.-]{6,}|(?<![a-z])(key|token|bearer)[-_ :=]+(?=[\w.-]{0,256}\d)[\w.-]{6,}"
)
CODE_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
MESSAGES = {
    "api_error": "The model's provider failed.",
    "authentication_error": "The model's provider does not accept the API key.",
    "bad_stream": "The model's provider sent something that cannot be read.",
    "billing_error": "The model's provider asks for a payment.",
    "conflict_error": "The model's provider was busy with another request.",
    "connection_error": "The model's provider could not be reached.",
    "incomplete": "The stream ended before the message did.",
    "invalid_request_error": "The model's provider refused the request.",
    "not_found_error": "The model's provider does not know this model.",
    "overloaded_error": "The model is overloaded.",
    "permission_error": "The API key may not use this model.",
    "rate_limit_error": "Too many requests to the model.",
    "request_too_large": "The conversation is too large for the model.",
    "timeout_error": "The model took too long.",
}
DEFAULT_MESSAGE = "The model failed."
RETRIABLE_CODES = frozenset(
    {
        *("api_error", "bad_stream", "conflict_error", "connection_error"),
        *("incomplete", "overloaded_error", "rate_limit_error", "timeout_error"),
    }
)
CODES_WITH_DETAIL = frozenset({"invalid_request_error", "not_found_error"})  # with the provider's own words


def make_model_error(code: str, detail: str = "", retry_after_s: float | None = None) -> ModelError:
    """The fault of a code."""
    sentence = MESSAGES.get(code, DEFAULT_MESSAGE)
    if detail and code in CODES_WITH_DETAIL:
        sentence = f"{sentence[:-1]}: {redact_detail(detail)}"
    return ModelError(code, sentence, retriable=code in RETRIABLE_CODES, retry_after_s=retry_after_s)


def redact_detail(detail: str) -> str:
    """A provider's words: one line, bounded, without what looks like a key."""
    return SECRET_PATTERN.sub("[hidden]", " ".join(detail.split()))[:MAX_DETAIL_CHARS]


def error_from_status(error: Any) -> ModelError:
    """The fault of an answer: the type in its body counts, else its status."""
    status = error.status_code
    otherwise = "api_error" if status >= 500 or status < 400 else "invalid_request_error"
    code = provider_error_type(error.body) or CODE_BY_STATUS.get(status, otherwise)
    if status >= 500 and code not in RETRIABLE_CODES:
        code = CODE_BY_STATUS.get(status, "api_error")
    return make_model_error(
        code, provider_error_message(error.body), parse_retry_after_s(error.response.headers)
    )


def provider_error_type(body: Any) -> str | None:
    """The error's type, if the body names one that is known."""
    kind = body.get("error", {}).get("type") if is_error_body(body) else None
    return kind if kind in MESSAGES else None


def provider_error_message(body: Any) -> str:
    return str(body["error"].get("message", "")) if is_error_body(body) else ""


def is_error_body(body: Any) -> bool:
    return isinstance(body, dict) and isinstance(body.get("error"), dict)


def parse_retry_after_s(headers: Any) -> float | None:
    """How long the provider asks to wait: milliseconds, seconds or a date."""
    try:
        if (wait := headers.get("retry-after-ms")) is not None:
            seconds = float(wait) / 1000
        elif (wait := headers.get("retry-after")) is not None:
            seconds = (
                float(wait)
                if re.fullmatch(r"[\d.]+", wait)
                else parsedate_to_datetime(wait).timestamp() - time()
            )
        else:
            return None
    except (ValueError, TypeError):
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
