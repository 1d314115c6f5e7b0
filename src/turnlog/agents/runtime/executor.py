"""Runs tool calls. Input: a tool, a call and its context. Output: a `ToolResult`, or a question to a person.

- Arguments are validated first. At most `max_concurrent` calls run; others wait.
- An async function runs on the event loop, any other in a thread of its own, so that a tool that hangs
  blocks neither the loop nor the end of the process.
- A call that takes too long is answered with `TIMEOUT` and its tool is told to stop. Tools that do not stop
  are abandoned, up to a limit for the session and one for all sessions (`HungTools`).
- What a tool raises is logged. The result masks it, unless `describe` explains it (`turnlog serve --debug`)
  or it is a `ToolError`.
- A call whose idempotency key has a result gets that result; of two at once the second waits for the first.
- Cancelling `run` stops the tool; the caller then decides the result.
"""

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from msgspec import structs

from turnlog.agents.blob_urls import blob_url
from turnlog.agents.models.model import PutBlob
from turnlog.agents.runtime.idempotency import (
    CacheKey,
    IdempotencyCache,
    find_idempotency_key,
    idempotency_cache_key,
)
from turnlog.agents.tool_context import ToolContext, ToolError, WaitForInput
from turnlog.agents.tool_results import ResultTooLarge, result_to_json
from turnlog.agents.tools import (
    ImageContent,
    Tool,
    ToolFunction,
    error_info_result,
    error_result,
    ok_result,
    split_images,
)
from turnlog.events import ErrorInfo, Image, ToolCall, ToolResult

log = logging.getLogger("turnlog.agents")

MAX_CONCURRENT_CALLS = 5  # a model seldom makes more calls in one step
STOP_GRACE_S = 0.5  # for the clean-up of a tool that is stopped; a stop takes less than a second
MAX_ERROR_CHARS = 500
MAX_ABANDONED_TOOLS = 32  # of one session; more mean that its tools are broken, and no more are started
MAX_HUNG_TOOLS = 128  # of all sessions of a process; each may keep a thread and its stack

DescribeError = Callable[[str, Exception], str]  # (tool name, error) -> the message of the result
Confirm = Callable[[], Awaitable[None]]


def mask_tool_error(tool: str, error: Exception) -> str:
    """Return a message without details: an exception may contain what members must not read."""
    return f"{tool} failed"


def explain_tool_error(tool: str, error: Exception) -> str:
    """Return a message with the exception, for development: every member of the session reads it."""
    return f"{tool} failed: {type(error).__name__}: {str(error)[:MAX_ERROR_CHARS]}"


async def confirm_always() -> None:
    """For sessions that no other process can own."""


class HungTools:
    """The tools of all sessions of a process that were told to stop and did not.

    At `max_tools` no session starts another tool.
    """

    def __init__(self, max_tools: int = MAX_HUNG_TOOLS) -> None:
        self._max_tools = max_tools
        self._running: set[asyncio.Future[Any]] = set()

    def add(self, work: "asyncio.Future[Any]") -> None:
        self._running.add(work)
        work.add_done_callback(self._running.discard)

    @property
    def is_full(self) -> bool:
        return len(self._running) >= self._max_tools


class Executor:
    """Runs the calls of one session. The runtime feeds its `idempotency_cache` from the log."""

    def __init__(
        self,
        put_blob: PutBlob,
        max_concurrent: int = MAX_CONCURRENT_CALLS,
        describe: DescribeError = mask_tool_error,
        hung: HungTools | None = None,
        confirm: Confirm = confirm_always,
    ) -> None:
        """`confirm` is awaited before each tool: it raises if another process owns the session now."""
        self._describe = describe
        self._confirm = confirm
        self._hung_tools = hung or HungTools()
        self.idempotency_cache = IdempotencyCache()
        self._put_blob = put_blob
        self._slots = asyncio.Semaphore(max_concurrent)
        self._key_locks: WeakValueDictionary[CacheKey, asyncio.Lock] = WeakValueDictionary()
        self._abandoned: set[asyncio.Future[Any]] = set()

    async def run(self, tool: Tool, call: ToolCall, context: ToolContext) -> ToolResult | WaitForInput:
        values = tool.validate(call)
        if isinstance(values, ErrorInfo):
            return error_info_result(call, values)
        if find_idempotency_key(call) is None:
            return await self._run_validated(tool, call, context, values)
        async with self._key_locks.setdefault(idempotency_cache_key(call), asyncio.Lock()):
            earlier_result = self.idempotency_cache.find_result(call)
            if earlier_result is not None:
                return earlier_result
            result = await self._run_validated(tool, call, context, values)
            if isinstance(result, ToolResult) and result.ok:
                self.idempotency_cache.add_pending(call, result)
            return result

    async def _run_validated(
        self, tool: Tool, call: ToolCall, context: ToolContext, values: dict[str, Any]
    ) -> ToolResult | WaitForInput:
        if tool.context_parameter is not None:
            values = values | {tool.context_parameter: context}
        async with self._slots:
            await self._confirm()
            if len(self._abandoned) >= MAX_ABANDONED_TOOLS or self._hung_tools.is_full:
                log.error("tool %s was not started: too many tools do not stop", tool.name)
                return error_result(call, "EXECUTION_ERROR", f"{tool.name} cannot run now")
            context.open()
            work = start_tool(tool, values)
            try:
                done, _ = await asyncio.wait({work}, timeout=tool.timeout_s)
                if not done:
                    await self._stop_tool(work, context)
            except asyncio.CancelledError:
                context.discard_pending()
                await self._stop_tool(work, context)
                raise
            await context.close()
        if not done:
            return error_result(call, "TIMEOUT", f"{tool.name} took longer than {tool.timeout_s:g} s")
        return await self._build_result(tool, call, work)

    async def _stop_tool(self, work: "asyncio.Future[Any]", context: ToolContext) -> None:
        """Stop a tool and wait shortly: a coroutine is cancelled, a thread must check `context.cancelled`."""
        context.cancel()
        if isinstance(work, asyncio.Task):
            work.cancel()
        self._abandoned.add(work)
        self._hung_tools.add(work)
        work.add_done_callback(self._on_abandoned_done)
        await asyncio.wait({work}, timeout=STOP_GRACE_S)

    def _on_abandoned_done(self, work: "asyncio.Future[Any]") -> None:
        self._abandoned.discard(work)
        if not work.cancelled():
            work.exception()  # marks it as retrieved; asyncio would log it otherwise

    async def _build_result(
        self, tool: Tool, call: ToolCall, work: "asyncio.Future[Any]"
    ) -> ToolResult | WaitForInput:
        try:
            value, images = split_images(unwrap_result(work))
            if isinstance(value, WaitForInput):
                return value
            if isinstance(value, ToolError):
                return error_result(call, value.code, str(value), result_to_json(value.details))
            # in a thread: a result may be far larger than the limit, and the event loop must not wait for it
            value = await asyncio.to_thread(result_to_json, value)
            stored_images = [await self._store_image(image) for image in images]
            return structs.replace(ok_result(call, value), images=tuple(stored_images))
        except ResultTooLarge as error:
            return error_result(call, "EXECUTION_ERROR", f"the result is {error}")
        except Exception as error:
            log.error("tool %s failed in %s", tool.name, call.call_id, exc_info=error)
            message = self._describe(tool.name, error).encode(errors="replace").decode()
            return error_result(call, "EXECUTION_ERROR", message)

    async def _store_image(self, image: ImageContent) -> Image:
        name = await self._put_blob(image.data, image.media_type)
        return Image(src=blob_url(name), media_type=image.media_type, size_bytes=len(image.data))


class ToolCrash(Exception):
    """A tool ended neither with a result nor with an ordinary exception."""


def unwrap_result(work: "asyncio.Future[Any]") -> Any:
    """Return what a tool returned, or its `WaitForInput` or `ToolError`. Raise anything else it raised."""
    if work.cancelled():
        raise ToolCrash("the tool cancelled itself")
    try:
        return work.result()
    except WaitForInput as request:
        questions = result_to_json(request.questions)
        if not isinstance(questions, dict):
            raise ToolCrash("the tool asked for input with a value that is no JSON object") from request
        return WaitForInput(questions)
    except ToolError as error:
        return error


def start_tool(tool: Tool, values: dict[str, Any]) -> "asyncio.Future[Any]":
    if inspect.iscoroutinefunction(tool.function):
        return asyncio.create_task(run_coroutine(tool.function, values))
    return run_in_thread(tool.function, values)


async def run_coroutine(function: ToolFunction, values: dict[str, Any]) -> Any:
    """Call an async tool. Raise `ToolCrash` in place of exceptions that would end the process."""
    try:
        return await function(**values)
    except (SystemExit, BaseExceptionGroup) as error:
        raise ToolCrash(f"the tool raised {type(error).__name__}") from error


def run_in_thread(function: ToolFunction, values: dict[str, Any]) -> "asyncio.Future[Any]":
    """Call a tool in a daemon thread: the end of the process does not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            set_outcome = partial(future.set_result, context.run(function, **values))
        except StopIteration:  # a future cannot carry it
            set_outcome = partial(future.set_exception, ToolCrash("the tool raised StopIteration"))
        except Exception as error:  # noqa: BLE001  the future raises it
            set_outcome = partial(future.set_exception, error)
        except BaseException as error:  # noqa: BLE001  SystemExit ends only this thread
            set_outcome = partial(future.set_exception, ToolCrash(repr(error)))
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(set_outcome)

    threading.Thread(target=work, name=f"tool {function.__name__}", daemon=True).start()
    return future
