"""Convert errors of a provider to `ModelError`: a code, a message for users, and whether a retry makes sense.

The provider's own message is kept beside ours, without text that looks like a key; what it says about the
account (keys, permissions, payment) is not. It is a part of ours if the provider refused a request, because
only that explains the refusal. The code is the error's type, which a stream that began well may also carry,
or follows from the status.
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
        "api_error",
        "bad_stream",
        "conflict_error",
        "connection_error",
        "incomplete",
        "overloaded_error",
        "rate_limit_error",
        "timeout_error",
    }
)
ACCOUNT_CODES = frozenset({"authentication_error", "billing_error", "permission_error"})
CODES_WITH_DETAIL = frozenset({"invalid_request_error", "not_found_error"})


def make_model_error(code: str, detail: str = "", retry_after_s: float | None = None) -> ModelError:
    """Build the error of a code; `detail` is the provider's message."""
    message = MESSAGES.get(code, DEFAULT_MESSAGE)
    redacted = redact_detail(detail)
    if redacted and code in CODES_WITH_DETAIL:
        message = f"{message[:-1]}: {redacted}"
    return ModelError(
        code,
        message,
        provider_message=redacted if redacted and code not in ACCOUNT_CODES else None,
        retriable=code in RETRIABLE_CODES,
        retry_after_s=retry_after_s,
    )


def redact_detail(detail: str) -> str:
    """Return a provider's message in one line, bounded, without text that looks like a key."""
    one_line = " ".join(detail.encode(errors="replace").decode().split())
    return SECRET_PATTERN.sub("[hidden]", one_line)[:MAX_DETAIL_CHARS]


def error_from_status(error: Any) -> ModelError:
    status = error.status_code
    is_server_error = status >= 500
    code = provider_error_type(error.body)
    if code is None:
        default_code = "api_error" if is_server_error or status < 400 else "invalid_request_error"
        code = CODE_BY_STATUS.get(status, default_code)
    # a server error may pass, whatever type its body names
    if is_server_error and code not in RETRIABLE_CODES:
        code = CODE_BY_STATUS.get(status, "api_error")
    detail = provider_error_message(error.body)
    return make_model_error(code, detail, parse_retry_after_s(error.response.headers))


def provider_error_type(body: Any) -> str | None:
    """Return the error's type, or None if the body has no known one."""
    error_type = body["error"].get("type") if is_error_body(body) else None
    return error_type if error_type in MESSAGES else None


def provider_error_message(body: Any) -> str:
    return str(body["error"].get("message", "")) if is_error_body(body) else ""


def is_error_body(body: Any) -> bool:
    return isinstance(body, dict) and isinstance(body.get("error"), dict)


def parse_retry_after_s(headers: Any) -> float | None:
    """Return the provider's Retry-After, which may be milliseconds, seconds or a date; None without one."""
    after_ms = headers.get("retry-after-ms")
    after = headers.get("retry-after")
    try:
        if after_ms is not None:
            delay_s = float(after_ms) / 1000
        elif after is None:
            return None
        elif re.fullmatch(r"[\d.]+", after):
            delay_s = float(after)
        else:
            delay_s = parsedate_to_datetime(after).timestamp() - time()
    except (ValueError, TypeError):
        return None
    return max(delay_s, 0.0) if math.isfinite(delay_s) else None
