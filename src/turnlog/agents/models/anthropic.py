"""`anthropic:<model>`: Anthropic's Messages API through its SDK, which is imported when it is first used.

One request is one stream, parsed by `parse/messages_api`. The SDK does not retry: the runtime does, after it
has retracted the output. If a stream ends early, one last batch closes what is open and a `ModelError` is
raised; a body without `message_stop` is such an end. Cancelling closes the connection. The SDK reads the key
from the environment, or `client` has it; this module neither stores nor logs it.

`provider_tools`, `thinking` and `options` (as `temperature` or `cache_control`) are passed on unchanged.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from turnlog.agents.models.errors import error_from_status, make_model_error
from turnlog.agents.models.files import download_files
from turnlog.agents.models.messages import Body, build_messages_body, may_think, parts_since_user
from turnlog.agents.models.model import ModelError, Request
from turnlog.errors import CallerError
from turnlog.events import AssistantFiles, ErrorInfo, Payload, ToolCall
from turnlog.parse import MessagesParser
from turnlog.parse.messages_api import INCOMPLETE
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.history import Message

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

MAX_TOKENS = 8192  # what every current model can generate in one message
MAX_CONTAINERS = 1000  # calls whose container is remembered
LINGER_S = 1.0  # to read to the end of the body, so that the connection can be used again
NO_KEY = "There is no API key: set ANTHROPIC_API_KEY, or pass a client to the model."
NO_PACKAGE = "anthropic:... needs the package anthropic: pip install 'turnlog[anthropic]'"


@dataclass(frozen=True, eq=False)
class AnthropicModel:
    """A model of Anthropic's Messages API."""

    model: str
    max_tokens: int = field(default=MAX_TOKENS, kw_only=True)
    thinking: Mapping[str, Any] | None = field(default=None, kw_only=True)
    provider_tools: tuple[Body, ...] = field(default=(), kw_only=True)
    betas: tuple[str, ...] = field(default=(), kw_only=True)
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    client: "AsyncAnthropic | None" = field(default=None, kw_only=True, repr=False)
    _clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncAnthropic]" = field(
        default_factory=WeakKeyDictionary, init=False, repr=False
    )  # a client's connections belong to one event loop
    _containers: dict[str, str] = field(default_factory=dict, init=False, repr=False)  # by call id

    def __post_init__(self) -> None:
        if self.client is None and find_spec("anthropic") is None:
            raise CallerError(NO_PACKAGE)

    @property
    def name(self) -> str:
        return self.model

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        parser = MessagesParser(reply)
        call_ids: list[str] = []
        model_error: ModelError | None = None
        try:
            events = await self._send_request(request)
        except sdk_errors() as error:
            raise to_model_error(error) from None

        try:
            while not parser.has_ended and (event := await anext(events, None)) is not None:
                batch = parser.feed(event)
                if not batch:
                    continue
                if any(isinstance(payload, AssistantFiles) for payload in batch):
                    batch = await download_files(batch, await self._client_for_loop(), request.put_blob)
                yield batch
                call_ids += [payload.call_id for payload in batch if isinstance(payload, ToolCall)]
            if parser.has_ended:
                self._remember_container(call_ids, parser.container)
                await drain_stream(events)
        except sdk_errors() as error:
            model_error = to_model_error(error)
        finally:
            await events.close()

        if reply.complete:
            return
        if model_error is not None:
            yield parser.flush(ErrorInfo(code=model_error.code, message=model_error.message))
            raise model_error
        yield parser.flush(None)
        problem = reply.error or INCOMPLETE
        raise make_model_error(problem.code, "" if problem is INCOMPLETE else problem.message)

    async def aclose(self) -> None:
        """Close the connections of this event loop, unless the caller passed in the client."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and self.client is None:
            await client.close()

    async def _send_request(self, request: Request) -> Any:
        body: Body = {"model": self.model, "max_tokens": request.max_tokens or self.max_tokens}
        body |= await build_messages_body(request, self.provider_tools)
        if self.thinking is not None:
            is_enabled = self.thinking.get("type") == "enabled"
            if not is_enabled or may_think(request.messages):
                body["thinking"] = dict(self.thinking)
        container = self._find_container(request.messages)
        if container is not None:
            body["container"] = container

        client = await self._client_for_loop()
        create: Any = client.messages.create
        if self.betas:
            create = partial(client.beta.messages.create, betas=list(self.betas))
        try:
            return await create(**body, **self.options, stream=True)
        except TypeError as error:  # the SDK raises it without a key
            if "authentication" in str(error):
                raise ModelError("authentication_error", NO_KEY) from None
            raise

    def _remember_container(self, call_ids: list[str], container: str | None) -> None:
        # the request that continues this message has to name the container in which its code runs
        if container is not None:
            self._containers.update(dict.fromkeys(call_ids, container))
        for call_id in list(self._containers)[:-MAX_CONTAINERS]:
            del self._containers[call_id]

    def _find_container(self, messages: list[Message]) -> str | None:
        """Return the container of the turn that the model continues; None in a new turn."""
        for part in reversed(parts_since_user(messages)):
            container = self._containers.get(part.get("id", ""))
            if container is not None:
                return container
        return None

    async def _client_for_loop(self) -> "AsyncAnthropic":
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # in a thread: the import takes a second
            sdk = await asyncio.to_thread(import_module, "anthropic")
            client = self.client or sdk.AsyncAnthropic()
            self._clients.setdefault(loop, client.with_options(max_retries=0))
        return self._clients[loop]


async def drain_stream(events: Any) -> None:
    """Read to the end of the body. Errors are ignored: the message is complete."""
    with suppress(TimeoutError, *sdk_errors()):
        async with asyncio.timeout(LINGER_S):
            await anext(events, None)


def sdk_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a failed request. A cut connection raises one of the SDK's transport."""
    sdk = import_module("anthropic")
    transport = import_module("httpx2")
    return sdk.AnthropicError, transport.HTTPError, transport.StreamError, OSError, ValueError


def to_model_error(error: Exception) -> ModelError:
    sdk = import_module("anthropic")
    transport = import_module("httpx2")
    if isinstance(error, sdk.APIStatusError):
        return error_from_status(error)
    if isinstance(error, sdk.APITimeoutError | transport.TimeoutException | TimeoutError):
        return make_model_error("timeout_error")
    if isinstance(error, sdk.APIConnectionError | OSError):
        return make_model_error("connection_error")
    if isinstance(error, transport.HTTPError | transport.StreamError):
        return make_model_error("incomplete")
    if isinstance(error, ValueError | sdk.APIError):
        return make_model_error("bad_stream")
    return ModelError("authentication_error", NO_KEY)  # the SDK could not read its credentials
