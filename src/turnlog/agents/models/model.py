"""What an agent needs of a model, and what a model is given.

A model reads a `Request` and says what it says to a `Reply`; it yields the batches it gets from it: `yield
reply.text("Hello ")`, `yield reply.call("add", {"a": 1})`, at the end `yield reply.done("end_turn", usage)`.
A stream that cannot be completed raises a `ModelFault`, which says whether asking again makes sense; asking
again is the caller's work, because what was shown has to be retracted first.
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
    """What a model is told of a tool; `schema` is the JSON Schema of its arguments, an object."""

    name: str
    description: str
    schema: dict[str, Any]


async def no_blob_reader(name: str) -> Blob:
    """Where there is no log, there are no blobs."""
    raise NotFound(f"no blob {name[:80]}")


async def no_blob_writer(data: bytes, media_type: str) -> str:
    """Where there is no log, nothing is kept."""
    raise NotFound("there is no log to keep it in")


def session_blob_reader(session_id: str, read: ReadBlob) -> ReadBlob:
    """The blobs of one session: what a page says of an image may name no other one's."""

    async def blob(name: str) -> Blob:
        return await (read if name.startswith(f"{session_id}/") else no_blob_reader)(name)

    return blob


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model: the conversation so far, and what it may use to answer."""

    instructions: str
    messages: list[Message]
    tools: tuple[ToolSpec, ...] = ()
    read_blob: ReadBlob = no_blob_reader  # images of tool results are named by their session and hash
    max_tokens: int | None = None  # instead of the model's own limit
    put_blob: PutBlob = no_blob_writer  # keeps files that the provider's tools made; returns their names


class ModelError(TurnlogError):
    """A model failed. `code` is the provider's name of it or ours; `message` may be shown to users.

    Both go to the log, which ends the turn: a code that is no name there is `model_failed`.
    """

    def __init__(
        self, code: str, message: str, *, retriable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code if CODE_PATTERN.fullmatch(code) else MODEL_FAILED
        self.message = message.encode(errors="replace").decode()
        self.retriable = retriable
        self.retry_after_s = retry_after_s  # how long the provider asks to wait, if it does


class Model(Protocol):
    """What an agent needs of a model."""

    @property
    def name(self) -> str:
        """The name that stands in the log."""
        ...

    def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        """The reply, batch by batch; a stream that ends before `done` has failed, as one that raises."""
        ...
