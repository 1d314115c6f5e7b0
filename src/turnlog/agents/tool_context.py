"""`Context`: what a running tool knows of its call, and how it speaks before it answers.

A tool gets one by annotating a parameter with `Context`; the model does not see that parameter. `progress`
works in a thread and on the loop, and never waits: texts go to the log in order, all that came during a write
with the next one. A tool that says more than the log can take loses its oldest texts; one that was stopped or
has answered is not heard any more. `show` is the same for views, of which none is lost: they are in the log
before the tool's result. The executor opens and closes it.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from turnlog.agents.runtime.idempotency import find_idempotency_key
from turnlog.errors import CallerError
from turnlog.events import CATALOG, Payload, ToolCall, ToolProgress, View

MAX_PENDING_TEXTS = 256  # texts; a write takes milliseconds, and nobody reads faster than that
MAX_TEXT_CHARS = 16 * 1024  # of one text: a line of output, not a file
MAX_VIEWS = 64  # that one call may show; they wait for the log, and none of them is dropped

EmitProgress = Callable[[list[Payload]], Awaitable[None]]


async def discard_progress(progress: list[Payload]) -> None:
    """Progress nobody asked for."""


class WaitForInput(Exception):
    """A tool raises it to ask the person; it is called again with the answer in `context.values`."""

    def __init__(self, questions: dict[str, Any]) -> None:
        super().__init__("the tool waits for input")
        self.questions = questions


class ToolError(Exception):
    """A tool raises it to say what is wrong with a call, in an answer of its own that is not masked:

    ToolFault("VALIDATION_ERROR", "weight_lbs must be > 0", {"path": ["rows", 0, "weight_lbs"]})
    """

    def __init__(self, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class ToolContext:
    """One call as its tool sees it. `idempotency_key` is the caller's, or else the call's own id; `values` is
    what the person answered, if the tool asked; `actor` is who spoke last in the turn, if the log says so."""

    def __init__(
        self,
        call: ToolCall,
        session_id: str = "",
        agent_name: str = "",
        emit: EmitProgress = discard_progress,
        values: dict[str, Any] | None = None,
        actor: str | None = None,
    ) -> None:
        self.call_id = call.call_id
        self.tool = call.tool
        self.session_id = session_id
        self.agent_name = agent_name
        self.idempotency_key = find_idempotency_key(call) or call.call_id
        self.values = values
        self.actor = actor
        self._emit = emit
        self._pending_texts: deque[str] = deque(maxlen=MAX_PENDING_TEXTS)
        self._views: list[Payload] = []
        self._view_count = 0
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._write_task: asyncio.Task[None] | None = None
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more; a tool in a thread has to look."""
        return self._cancelled.is_set()

    def progress(self, text: str) -> None:
        """Say something now; it becomes a `tool.progress` that is there while the call runs."""
        self._enqueue(
            lambda: self._pending_texts.append(str(text)[:MAX_TEXT_CHARS].encode(errors="replace").decode())
        )

    def show_view(self, view: View) -> None:
        """Show a view; a wrong one is an `InvalidEvent` here. One with the same `view_id` is replaced."""
        shown = CATALOG.build_event("assistant.view", {"view": view}, id="evt_shown", origin="tool").payload
        assert isinstance(shown, Payload)
        self._enqueue(lambda: self._add_view(shown))

    def _add_view(self, view_event: Payload) -> None:
        if self._view_count == MAX_VIEWS:
            raise CallerError(f"expected a call to show at most {MAX_VIEWS} views")
        self._view_count += 1
        self._views.append(view_event)

    def _enqueue(self, add: Callable[[], None]) -> None:
        """Put something into the next write, if anybody listens."""
        with self._lock:
            loop, idle = self._loop, not self._pending_texts and not self._views
            if loop is None:
                return
            add()
        if idle:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                loop.call_soon_threadsafe(self._start_write)

    def open(self) -> None:
        """Listen to the tool, on the running loop."""
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Hear no more, and wait until what was said is in the log."""
        self._loop = None
        if self._write_task is not None:
            await self._write_task
        await self._write()

    def cancel(self) -> None:
        """Tell the tool to stop; it is not heard any more."""
        self._loop = None
        self._cancelled.set()
        self._take_pending()

    def discard_pending(self) -> None:
        """Write no more: who wanted the answer has gone."""
        self.cancel()
        if self._write_task is not None:
            self._write_task.cancel()

    def _start_write(self) -> None:
        """Begin to write, unless that is under way; a write that failed is the last, and `close` says so."""
        before = self._write_task
        if self._loop is not None and (before is None or (before.done() and not before.exception())):
            self._write_task = asyncio.create_task(self._write())

    def _take_pending(self) -> list[Payload]:
        with self._lock:
            texts, views = list(self._pending_texts), list(self._views)
            self._pending_texts.clear()
            self._views.clear()
        return [*(ToolProgress(call_id=self.call_id, text=text) for text in texts), *views]

    async def _write(self) -> None:
        while batch := self._take_pending():
            await self._emit(batch)
