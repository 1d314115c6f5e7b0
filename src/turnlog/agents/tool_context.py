"""`ToolContext`: what a running tool knows of its call, and how it reports before it returns.

A tool gets one by annotating a parameter with `ToolContext`; the model does not see that parameter.
`progress` and `show_view` work in a thread and on the event loop, and never wait. Texts and views are
appended in order; all that come during a write go into the next one. If a tool reports faster than the log
can write, its oldest texts are dropped, but no view: views are in the log before the tool's result. Reports
of a tool that was stopped or has returned are dropped. The executor opens and closes the context.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from turnlog.agents.runtime.idempotency import find_idempotency_key
from turnlog.errors import CallerError, InvalidEvent
from turnlog.events import CATALOG, AssistantView, Catalog, Payload, ToolCall, ToolProgress, View
from turnlog.events.strict_json import split_json_path

if TYPE_CHECKING:
    from turnlog.state.view_actions import OpenViews

MAX_PENDING_TEXTS = 256  # a write takes milliseconds, and no person reads faster
MAX_TEXT_CHARS = 16 * 1024  # of one text: a line of output, not a file
MAX_VIEWS = 64  # of one call; they wait for the log, and none of them is dropped

EmitProgress = Callable[[list[Payload]], Awaitable[None]]


async def discard_progress(progress: list[Payload]) -> None:
    """Ignore the progress of a tool whose caller has no log."""


class WaitForInput(Exception):
    """A tool raises it to ask the person. The tool is called again with the answer in `context.values`."""

    def __init__(self, questions: dict[str, Any]) -> None:
        super().__init__("the tool waits for input")
        self.questions = questions


class ToolError(Exception):
    """A tool raises it to fail a call with a code and message that reach the model unmasked:

    ToolError("VALIDATION_ERROR", "weight_lbs must be > 0", {"path": ["rows", 0, "weight_lbs"]})
    """

    def __init__(self, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class InvalidView(InvalidEvent, ToolError):
    """A tool showed a wrong view. Unless the tool catches it, the model reads what is wrong and where."""

    def __init__(self, error: InvalidEvent) -> None:
        path = split_json_path(error.path.removeprefix("$.payload"))
        ToolError.__init__(self, "VALIDATION_ERROR", str(error), {"path": path})
        self.problem = error.problem
        self.path = error.path


class ToolContext:
    """One call as its tool sees it.

    `idempotency_key` is the caller's, or else the call's id. `values` is the person's answer if the tool
    asked for input. `actor` is the last sender in the turn, None if the log does not name one. `state` is the
    application's state when the call started; do not change it. It is None without an application, and in a
    remote executor. `fence` rises with every owner of the session: a system that refuses lower numbers than
    it has seen is safe from a process that was taken for dead.
    """

    def __init__(  # noqa: PLR0913  all but the first are options
        self,
        call: ToolCall,
        session_id: str = "",
        agent_name: str = "",
        emit: EmitProgress = discard_progress,
        values: dict[str, Any] | None = None,
        actor: str | None = None,
        state: Any = None,
        catalog: Catalog = CATALOG,
        fence: int = 0,
        views: "OpenViews | None" = None,
        channel: str | None = None,
    ) -> None:
        self.call_id = call.call_id
        self.tool = call.tool
        self.session_id = session_id
        self.agent_name = agent_name
        self.idempotency_key = find_idempotency_key(call) or call.call_id
        self.values = values
        self.actor = actor
        self.state = state
        self.fence = fence
        self._catalog = catalog
        self._open_views = views  # as the call began, with what it has shown since; None if it has no session
        self._channel = channel
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
        """Return whether the result is not needed any more. A tool in a thread has to check it."""
        return self._cancelled.is_set()

    def progress(self, text: str) -> None:
        """Append a `tool.progress` event with at most `MAX_TEXT_CHARS` characters of a text."""
        # a lone surrogate cannot be encoded as JSON
        valid_text = str(text)[:MAX_TEXT_CHARS].encode(errors="replace").decode()
        self._enqueue(lambda: self._pending_texts.append(valid_text))

    def show_view(self, view: View) -> None:
        """Show a view in place of an earlier one with its `view_id`, or update a surface of A2UI.

        Raise `InvalidView` for a wrong one.
        """
        try:
            event = self._catalog.build_event("assistant.view", {"view": view}, id="evt_view", origin="tool")
        except InvalidEvent as error:
            raise InvalidView(error) from None
        payload = event.payload
        assert isinstance(payload, AssistantView)
        if self._open_views is not None:
            wrong_update = self._open_views.find_update_error(payload.view, self._channel)
            if wrong_update is not None:
                raise InvalidView(wrong_update)
            self._open_views.show(payload.view, event.id, self._channel)
        self._enqueue(lambda: self._add_view(payload))

    def _add_view(self, view_event: Payload) -> None:
        if self._view_count == MAX_VIEWS:
            raise CallerError(f"expected a call to show at most {MAX_VIEWS} views")
        self._view_count += 1
        self._views.append(view_event)

    def _enqueue(self, add: Callable[[], None]) -> None:
        with self._lock:
            loop = self._loop
            if loop is None:
                return
            was_empty = not self._pending_texts and not self._views
            add()
        if was_empty:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._start_write)

    def open(self) -> None:
        """Accept reports, and write them from the running event loop."""
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Accept no more reports, and wait until all pending ones are in the log."""
        self._loop = None
        if self._write_task is not None:
            await self._write_task
        await self._write()

    def cancel(self) -> None:
        """Set `cancelled`, accept no more reports and drop the pending ones."""
        self._loop = None
        self._cancelled.set()
        self._take_pending()

    def discard_pending(self) -> None:
        """Cancel, and abort the write that is under way."""
        self.cancel()
        if self._write_task is not None:
            self._write_task.cancel()

    def _start_write(self) -> None:
        if self._loop is None:
            return
        task = self._write_task
        # after a write that failed there is no other: `close` raises its error
        may_start = task is None or (task.done() and not task.exception())
        if may_start:
            self._write_task = asyncio.create_task(self._write())

    def _take_pending(self) -> list[Payload]:
        with self._lock:
            texts = list(self._pending_texts)
            views = list(self._views)
            self._pending_texts.clear()
            self._views.clear()
        progress = [ToolProgress(call_id=self.call_id, text=text) for text in texts]
        return [*progress, *views]

    async def _write(self) -> None:
        while batch := self._take_pending():
            await self._emit(batch)
