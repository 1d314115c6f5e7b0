"""A store in another process: its methods run there, its rings arrive here.

Jobs are data and outcomes are, too, so both travel through a pipe. `StoreProcess` is the process, which
opens any number of stores, one after the other or at once; `RemoteStore` is one of them.
"""

import multiprocessing
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from turnlog.errors import TurnlogError
from turnlog.log.bell import Bell, RingListener, StopListening
from turnlog.log.postgres.store import LEASE_S, PostgresStore


def rebuild_error(kind: type[TurnlogError], args: tuple[object, ...], fields: dict[str, object]) -> object:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


def reduce_error(error: TurnlogError) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    # The arguments of an error are not those of its class.
    return rebuild_error, (type(error), error.args, dict(error.__dict__))


def register_errors(kind: type[TurnlogError]) -> None:
    ForkingPickler.register(kind, reduce_error)
    for child in kind.__subclasses__():
        register_errors(child)


class StoreServer:
    """Runs in the other process: answers calls until it gets None."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._send_lock = threading.Lock()
        self._stores: dict[int, PostgresStore] = {}
        self._stops: dict[int, StopListening] = {}
        self._pool = ThreadPoolExecutor(16)

    def run(self) -> None:
        while (call := self._pipe.recv()) is not None:
            self._pool.submit(self._answer, *call)
        self._pool.shutdown()

    def _answer(self, call: int, store: int, method: str, args: tuple[Any, ...]) -> None:
        try:
            result = self._call(store, method, args)
        except Exception as error:  # noqa: BLE001  the caller gets it
            result = error
        self._send(("answer", call, result))

    def _call(self, store: int, method: str, args: tuple[Any, ...]) -> Any:
        if method == "open":
            self._stores[store] = PostgresStore(*args)
            return None
        if method == "listen":
            ring = partial(self._ring, store)
            self._stops[store] = self._stores[store].listen(ring)
            return None
        if method == "close" and store in self._stops:
            self._stops.pop(store)()
        result = getattr(self._stores[store], method)(*args)
        return list(result) if method == "verify" else result

    def _ring(self, store: int, moved: Mapping[str, int], is_wanted: bool) -> None:
        self._send(("ring", store, (dict(moved), is_wanted)))

    def _send(self, message: tuple[Any, ...]) -> None:
        with self._send_lock:
            self._pipe.send(message)


def serve_stores(pipe: Connection) -> None:
    register_errors(TurnlogError)
    StoreServer(pipe).run()


class StoreProcess:
    """A process with stores."""

    def __init__(self) -> None:
        register_errors(TurnlogError)
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self.process = context.Process(target=serve_stores, args=(child,), daemon=True)
        self.process.start()
        child.close()
        self._send_lock = threading.Lock()
        self._answers: dict[int, Future[Any]] = {}
        self._bells: dict[int, Bell] = {}
        self._calls = 0
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def open_store(self, url: str) -> "RemoteStore":
        number = len(self._bells)
        self._bells[number] = Bell()
        self.call(number, "open", (url,))
        return RemoteStore(self, number, self._bells[number])

    def call(self, store: int, method: str, args: tuple[Any, ...]) -> Any:
        answer: Future[Any] = Future()
        with self._send_lock:
            self._calls += 1
            self._answers[self._calls] = answer
            self._pipe.send((self._calls, store, method, args))
        result = answer.result()
        if isinstance(result, Exception):
            raise result
        return result

    def _receive(self) -> None:
        try:
            while True:
                kind, number, content = self._pipe.recv()
                if kind == "answer":
                    self._answers.pop(number).set_result(content)
                else:
                    self._bells[number].ring(*content)
        except (EOFError, OSError):
            return

    def close(self) -> None:
        with self._send_lock:
            self._pipe.send(None)
        self.process.join()
        self._thread.join()
        self._pipe.close()


class RemoteStore:
    """One store of a `StoreProcess`."""

    max_batch = PostgresStore.max_batch
    reader_threads = PostgresStore.reader_threads
    reconcile_s = PostgresStore.reconcile_s
    lease_s = LEASE_S

    def __init__(self, process: StoreProcess, number: int, bell: Bell) -> None:
        self._process = process
        self._number = number
        self._bell = bell

    def listen(self, ring: RingListener) -> Callable[[], None]:
        stop = self._bell.listen(ring)
        self._process.call(self._number, "listen", ())
        return stop

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *args: self._process.call(self._number, method, args)
