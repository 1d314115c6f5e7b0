"""The access log: one record per request, with the template of its route.

Paths, queries, headers and bodies are never logged. `log_format` removes the credentials of the request from
everything that is logged while it is served.
"""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnlog.server.log_format import (
    CURRENT_REQUEST,
    RequestSecrets,
    format_traceback_without_messages,
    select_secret_headers,
)
from turnlog.server.scope_keys import PRINCIPAL_KEY, SENT_BYTES_KEY, SESSION_KEY, TURN_KEY

log = logging.getLogger("turnlog.server")

MAX_NAME_CHARS = 80  # of a name that a caller may have chosen


class AccessLogMiddleware:
    """ASGI middleware that logs each request when its response has ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        secrets = RequestSecrets(select_secret_headers(scope["headers"]), scope.get("query_string", b""))
        CURRENT_REQUEST.set(secrets)  # not reset: uvicorn logs later errors in the same task
        recorder = RecordingSend(secrets, send)
        try:
            await self._app(scope, receive, recorder)
        except Exception as error:
            secrets.error = error
            recorder.status = recorder.status or 500  # the server sends it now
            raise
        finally:
            log_request(scope, recorder, secrets.error)


class RecordingSend:
    """A `send` that records the status, the size and the end of a response."""

    __slots__ = ("_secrets", "_send", "end_s", "sent_bytes", "start_s", "status")

    def __init__(self, secrets: RequestSecrets, send: Send) -> None:
        self._secrets = secrets
        self._send = send
        self.start_s = time.monotonic()
        self.end_s: float | None = None
        self.status: int | None = None
        self.sent_bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._secrets.headers += select_secret_headers(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.sent_bytes += len(message.get("body", b""))
            if not message.get("more_body", False):
                self.end_s = time.monotonic()
        await self._send(message)


def log_request(scope: Scope, response: RecordingSend, error: BaseException | None) -> None:
    duration_s = (response.end_s or time.monotonic()) - response.start_s
    fields = {
        "method": truncate_name(scope["method"]),
        "route": getattr(scope.get("route"), "path", None),
        "status": response.status,
        "ms": round(duration_s * 1000, 1),
        "bytes": scope.get(SENT_BYTES_KEY, response.sent_bytes),
        "principal": truncate_name(getattr(scope.get(PRINCIPAL_KEY), "name", None)),
        "session": truncate_name(scope.get(SESSION_KEY)),
        "turn": truncate_name(scope.get(TURN_KEY)),
    }
    if error is None:
        log.info("request", extra=fields)
        return
    exception = "".join(format_traceback_without_messages(error))
    log.error("request failed", extra={**fields, "exception": exception})


def truncate_name(name: str | None) -> str | None:
    return name[:MAX_NAME_CHARS] if name else None
