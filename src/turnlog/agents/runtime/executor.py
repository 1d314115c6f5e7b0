"""The executor: runs calls of tools and turns whatever happens into an answer.

Arguments are validated first. At most `at_once` calls run; others wait for a place. An async function runs on
the loop, another one in a thread of its own, so that one that hangs holds up neither the loop nor the end of
the process. A call that takes too long is answered and its tool told to stop; what does not stop is left
behind, up to a limit for the session and one for all sessions (`HungTools`). What a tool raises is logged
here. The answer masks it, unless `describe` explains it (`turnlog serve --debug`); a `ToolFault` is the
answer. A call whose idempotency key has been answered is answered again, and of two at once the second waits
for the first. Cancelling `run` stops the tool and leaves the answer to who cancelled.
"""

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from msgspec import structs

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

MAX_CONCURRENT_CALLS = 5  # as many as the original ran; a model seldom asks for more in one step
STOP_GRACE_S = 0.5  # for the clean-up of a tool that is stopped; a stop is through within a second
MAX_ERROR_CHARS = 500
MAX_ABANDONED_TOOLS = (
    32  # tools that did not stop; above that something is wrong with them, and no more are started
)
MAX_HUNG_TOOLS = 128  # of all sessions of a process; each may hold a thread and its stack


DescribeError = Callable[[str, Exception], str]  # what an answer says of a tool that failed


def mask_tool_error(tool: str, error: Exception) -> str:
    """Say only that a tool failed: what it raised may hold what members must not read."""
    return f"{tool} failed"


def explain_tool_error(tool: str, error: Exception) -> str:
    """Say what a tool raised, for whoever develops it: every member of the session reads this."""
    return f"{tool} failed: {type(error).__name__}: {str(error)[:MAX_ERROR_CHARS]}"


class HungTools:
    """The tools of all sessions of a process that were told to stop and did not. When there are `most`, no
    session starts another tool."""

    def __init__(self, max_tools: int = MAX_HUNG_TOOLS) -> None:
        self._max_tools = max_tools
        self._running: set[asyncio.Future[Any]] = set()

    def add(self, work: "asyncio.Future[Any]") -> None:
        """Count a tool until it ends."""
        self._running.add(work)
        work.add_done_callback(self._running.discard)

    @property
    def is_full(self) -> bool:
        """Whether there are too many of them."""
        return len(self._running) >= self._max_tools


class Executor:
    """Runs the calls of one session; its `calls` are fed from the log."""

    def __init__(
        self,
        put_blob: PutBlob,
        max_concurrent: int = MAX_CONCURRENT_CALLS,
        describe: DescribeError = mask_tool_error,
        hung: HungTools | None = None,
    ) -> None:
        self._describe = describe
        self._hung_tools = hung or HungTools()
        self.idempotency_cache = IdempotencyCache()
        self._put_blob = put_blob
        self._slots = asyncio.Semaphore(max_concurrent)
        self._key_locks: WeakValueDictionary[CacheKey, asyncio.Lock] = WeakValueDictionary()
        self._abandoned: set[asyncio.Future[Any]] = set()

    async def run(self, tool: Tool, call: ToolCall, context: ToolContext) -> ToolResult | WaitForInput:
        """The answer to a call, or what its tool wants to ask first."""
        values = tool.validate(call)
        if isinstance(values, ErrorInfo):
            return error_info_result(call, values)
        if find_idempotency_key(call) is None:
            return await self._run_validated(tool, call, context, values)
        async with self._key_locks.setdefault(idempotency_cache_key(call), asyncio.Lock()):
            if earlier := self.idempotency_cache.find_result(call):
                return earlier
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
            if len(self._abandoned) >= MAX_ABANDONED_TOOLS or self._hung_tools.is_full:
                log.error("tool %s was not started: too many others did not stop", tool.name)
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
        """Stop a tool: a coroutine by cancelling it, a thread by telling it."""
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
            work.exception()  # nobody waits for it any more

    async def _build_result(
        self, tool: Tool, call: ToolCall, work: "asyncio.Future[Any]"
    ) -> ToolResult | WaitForInput:
        """What a tool did, as an answer that can be written."""
        try:
            value, found = split_images(unwrap_result(work))
            if isinstance(value, WaitForInput):
                return value
            if isinstance(value, ToolError):
                return error_result(call, value.code, str(value), result_to_json(value.details))
            # in a thread: a result may be far larger than what is taken, and others must not wait for it
            value = await asyncio.to_thread(result_to_json, value)
            images = [Image(src=await self._store_image(item), media_type=item.media_type) for item in found]
            return structs.replace(ok_result(call, value), images=tuple(images))
        except ResultTooLarge as error:
            return error_result(call, "EXECUTION_ERROR", f"the result is {error}")
        except Exception as error:
            log.error("tool %s failed in %s", tool.name, call.call_id, exc_info=error)
            message = self._describe(tool.name, error).encode(errors="replace").decode()
            return error_result(call, "EXECUTION_ERROR", message)

    async def _store_image(self, image: ImageContent) -> str:
        return "api/blobs/" + await self._put_blob(image.data, image.media_type)


class ToolCrash(Exception):
    """A tool ended in a way that is neither a result nor an error of its own."""


def unwrap_result(work: "asyncio.Future[Any]") -> Any:
    """What a tool returned, what it asks, or what it has to say against the call."""
    if work.cancelled():
        raise ToolCrash("it cancelled itself")
    try:
        return work.result()
    except WaitForInput as question:
        if not isinstance(asked := result_to_json(question.questions), dict):
            raise ToolCrash("it asked for input with what is no object") from question
        return WaitForInput(asked)
    except ToolError as fault:
        return fault


def start_tool(tool: Tool, values: dict[str, Any]) -> "asyncio.Future[Any]":
    """Run a function: on the loop if it is made for that, else in a thread."""
    if inspect.iscoroutinefunction(tool.function):
        return asyncio.create_task(run_coroutine(tool.function, values))
    return run_in_thread(tool.function, values)


async def run_coroutine(function: ToolFunction, values: dict[str, Any]) -> Any:
    """Call a tool that is a coroutine; its exit is not the end of the process."""
    try:
        return await function(**values)
    except (SystemExit, BaseExceptionGroup) as error:
        raise ToolCrash("it wanted to end the process") from error


def run_in_thread(function: ToolFunction, values: dict[str, Any]) -> "asyncio.Future[Any]":
    """Call a tool in a thread of its own, which the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            settle = partial(future.set_result, context.run(function, **values))
        except Exception as error:  # noqa: BLE001  it goes to whoever waits for the tool
            settle = partial(future.set_exception, wrap_stop_iteration(error))
        except BaseException as error:  # noqa: BLE001  and the end of a thread is the end of nothing else
            settle = partial(future.set_exception, ToolCrash(repr(error)))
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=work, name=f"tool {function.__name__}", daemon=True).start()
    return future


def wrap_stop_iteration(error: Exception) -> Exception:
    """An exception as a future can carry it."""
    return (
        ToolCrash("it stopped an iteration that is not its own")
        if isinstance(error, StopIteration)
        else error
    )
