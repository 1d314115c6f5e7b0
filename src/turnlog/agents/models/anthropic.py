"""`anthropic:<model>`: Anthropic's Messages API through its own SDK, which is imported when it is first used.

One request is one stream, read by `parse/messages_api`. The SDK retries nothing: a retry has to retract
first, so it is the caller's. Whatever ends a stream early closes what is open with one last batch and raises
a `ModelFault`; a body that ends without `message_stop` is such an end. Cancelling closes the connection. The
key comes from the environment, by the SDK, or with a client; it is neither kept nor written anywhere here.

`provider_tools`, `thinking` and `options` (as `temperature` or `cache_control`) are passed on as they are.
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
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.history import Message

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

MAX_TOKENS = 8192  # what every current model can say in one message
MAX_CONTAINERS = 1000  # calls whose container is known; beyond that the oldest are forgotten
LINGER_S = 1.0  # for the end of the body after the end of the message; then the connection can be used again
NO_KEY = "There is no API key: set ANTHROPIC_API_KEY, or give the model a client."
NO_PACKAGE = "anthropic:... needs the package anthropic: pip install 'turnlog[anthropic]'"


@dataclass(frozen=True, eq=False)
class AnthropicModel:
    """A model of Anthropic."""

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
    _containers: dict[str, str] = field(
        default_factory=dict, init=False, repr=False
    )  # by the provider's call

    def __post_init__(self) -> None:
        if self.client is None and find_spec("anthropic") is None:
            raise CallerError(NO_PACKAGE)

    @property
    def name(self) -> str:
        return self.model

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        parser, calls = MessagesParser(reply), list[str]()
        try:
            events = await self._send_request(request)
        except sdk_errors() as error:
            raise to_model_error(error) from None
        try:
            while not parser.has_ended and (event := await anext(events, None)) is not None:
                if batch := parser.feed(event):
                    if any(isinstance(said, AssistantFiles) for said in batch):
                        batch = await download_files(batch, await self._client_for_loop(), request.put_blob)
                    yield batch
                    calls += [said.call_id for said in batch if isinstance(said, ToolCall)]
            if parser.has_ended:
                self._remember_container(calls, parser.container)
                await drain_stream(events)
            problem = None
        except sdk_errors() as error:
            problem = to_model_error(error)
        finally:
            await events.close()
        if not reply.complete:
            yield parser.flush(ErrorInfo(code=problem.code, message=problem.message) if problem else None)
            raise problem or make_model_error(reply.error.code if reply.error else "incomplete")

    async def aclose(self) -> None:
        """Close the connections that this model opened itself in this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and self.client is None:
            await client.close()

    async def _send_request(self, request: Request) -> Any:
        """Send the request; the answer is a stream of raw events."""
        body: Body = {"model": self.model, "max_tokens": request.max_tokens or self.max_tokens}
        body |= await build_messages_body(request, self.provider_tools)
        if self.thinking is not None and (
            self.thinking.get("type") != "enabled" or may_think(request.messages)
        ):
            body["thinking"] = dict(self.thinking)
        if container := self._find_container(request.messages):
            body["container"] = container
        client = await self._client_for_loop()
        create: Any = client.messages.create
        if self.betas:
            create = partial(client.beta.messages.create, betas=list(self.betas))
        try:
            return await create(**body, **self.options, stream=True)
        except TypeError as error:  # how the SDK says that it has no key
            if "authentication" in str(error):
                raise ModelError("authentication_error", NO_KEY) from None
            raise

    def _remember_container(self, calls: list[str], container: str | None) -> None:
        """Where code of this message runs: what goes on with the message has to name it."""
        if container is not None:
            self._containers.update(dict.fromkeys(calls, container))
        for call_id in list(self._containers)[:-MAX_CONTAINERS]:
            del self._containers[call_id]

    def _find_container(self, messages: list[Message]) -> str | None:
        """The container of the message that the model goes on with; another turn gets another one."""
        calls = [part.get("id", "") for part in reversed(parts_since_user(messages))]
        return next((self._containers[call_id] for call_id in calls if call_id in self._containers), None)

    async def _client_for_loop(self) -> "AsyncAnthropic":
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            sdk = await asyncio.to_thread(import_module, "anthropic")  # it takes a second
            made = self.client or sdk.AsyncAnthropic()
            self._clients.setdefault(loop, made.with_options(max_retries=0))
        return self._clients[loop]


async def drain_stream(events: Any) -> None:
    """Read to the end of the body; whatever happens there, the message is complete."""
    with suppress(TimeoutError, *sdk_errors()):
        async with asyncio.timeout(LINGER_S):
            await anext(events, None)


def sdk_errors() -> tuple[type[Exception], ...]:
    """What the SDK raises when a request fails; a cut connection is its transport's error, not its own."""
    sdk, transport = import_module("anthropic"), import_module("httpx2")
    return sdk.AnthropicError, transport.HTTPError, transport.StreamError, OSError, ValueError


def to_model_error(error: Exception) -> ModelError:
    """An exception of the SDK, its transport or its decoder as a fault."""
    sdk, transport = import_module("anthropic"), import_module("httpx2")
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
    return ModelError("authentication_error", NO_KEY)  # what is left: credentials that cannot be read
