"""Threads for calls that may take long, so that the loop stays free for the others.

They are daemons: one that still waits for a store keeps nobody from ending the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

__all__ = ["MOST_THREADS", "SENT", "Afterwards", "Workers"]

MOST_THREADS = 32

SENT = "skillfs.sent"
"""Key of the scope of a request over HTTP: an `Afterwards` that runs when the answer is sent."""

P = ParamSpec("P")
T = TypeVar("T")


class _Job(NamedTuple):
    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Afterwards:
    """What is to be done when something is over; at once where it is over already."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], object]] = []
        self._is_over = False

    def add(self, call: Callable[[], object]) -> None:
        """Have something done."""
        if self._is_over:
            call()
        else:
            self._calls.append(call)

    def run(self) -> None:
        """It is over: do all."""
        self._is_over = True
        while self._calls:
            self._calls.pop()()


class Workers:
    """A few threads, begun when there is work for them.

    Who stops waiting for a call gives it up: if it has not begun it never does, else its result is dropped
    when the store's own deadline ends it.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unfinished = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in one of the threads and wait for what it returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._unfinished += 1
            if self._unfinished > self._threads < MOST_THREADS:
                self._threads += 1
                threading.Thread(target=self._work, name="skillfs-mcp", daemon=True).start()
        self._jobs.put(_Job(lambda: function(*args, **kwargs), loop, future))
        return await future

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being done, nor waits to be."""
        return self._unfinished == 0

    def close(self) -> None:
        """Let the threads end when they have nothing more to do."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            if not job.future.cancelled():
                try:
                    result = job.call()
                except BaseException as raised:  # whatever it is, who waits must not wait for ever
                    error = raised
            with self._lock:
                self._unfinished -= 1
            with contextlib.suppress(RuntimeError):  # the loop has ended
                job.loop.call_soon_threadsafe(_settle, job.future, result, error)
            del job, result, error  # a thread that waits holds nothing


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:
        future.set_exception(RuntimeError(f"a call ended with {type(error).__name__}"))
