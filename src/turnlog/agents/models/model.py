"""The interface of a model.

A model reads a `Request`, passes its output to a `ReplyBuilder` and yields the batches that it returns:
`yield reply.text("Hello ")`, `yield reply.call("add", {"a": 1})`, at the end `yield reply.done("end_turn",
usage)`. A stream that cannot be completed raises a `ModelError`, which says whether a retry makes sense. The
runtime retries, because it has to retract the output first.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from turnlog.errors import NotFound, TurnlogError
from turnlog.events import Payload
from turnlog.log import Blob
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.history import Message

ReadBlob = Callable[[str], Awaitable[Blob]]
PutBlob = Callable[[bytes, str], Awaitable[str]]  # content and media type in, a name out
CODE_PATTERN = re.compile(r"[!-~]{1,128}")
MODEL_FAILED = "model_failed"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it; `schema` is the JSON Schema of its arguments, an object."""

    name: str
    description: str
    schema: dict[str, Any]


async def no_blob_reader(name: str) -> Blob:
    """Raise `NotFound`: a request without a log has no blobs."""
    raise NotFound(f"no blob {name[:80]}")


async def no_blob_writer(data: bytes, media_type: str) -> str:
    """Raise `NotFound`: a request without a log cannot store blobs."""
    raise NotFound("there is no log to store this in")


def session_blob_reader(session_id: str, read: ReadBlob) -> ReadBlob:
    """Return a reader for the blobs of one session: an image's address may name one of another session."""

    async def read_own_blob(name: str) -> Blob:
        if not name.startswith(f"{session_id}/"):
            return await no_blob_reader(name)
        return await read(name)

    return read_own_blob


@dataclass(frozen=True, slots=True)
class Request:
    """The conversation so far, and what the model may use to answer."""

    instructions: str
    messages: list[Message]
    tools: tuple[ToolSpec, ...] = ()
    read_blob: ReadBlob = no_blob_reader  # of images in tool results
    max_tokens: int | None = None  # None: the model's own limit
    put_blob: PutBlob = no_blob_writer  # for files that the provider's tools create


class ModelError(TurnlogError):
    """A model failed. `code` is the provider's or ours; the messages may be shown to users.

    They are stored in the log; a code that the log would refuse becomes `model_failed`.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        provider_message: str | None = None,
        retriable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code if CODE_PATTERN.fullmatch(code) else MODEL_FAILED
        self.message = message.encode(errors="replace").decode()
        self.provider_message = provider_message
        self.retriable = retriable
        self.retry_after_s = retry_after_s  # the provider's Retry-After


class Model(Protocol):
    """Streams replies; any class with these members is one."""

    @property
    def name(self) -> str:
        """Return the name that `agent.start` and `agent.usage` store."""
        ...

    def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        """Yield the reply in batches. A stream that ends before `reply.done` counts as failed."""
        ...
