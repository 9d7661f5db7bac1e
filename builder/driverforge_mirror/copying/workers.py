"""Threads that work off a queue, and that a program which has to end does not wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

_T = TypeVar("_T")
_GRACE_S = 1.0
"""For what still runs when all is to end: most of it sees so at its next bytes."""


class Workers:
    """`count` threads. What one of them raises goes into `broken`, which ends all that share it.

    They are daemons: a ThreadPoolExecutor's are joined when the program ends, and Ctrl-C would wait for a
    registry that is silent, or wants a minute's pause.
    """

    def __init__(self, count: int, broken: Future[None]) -> None:
        self._broken = broken
        self._tasks = SimpleQueue[Callable[[], object] | None]()
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[..., _T], *given: object) -> Future[_T]:
        found: Future[_T] = Future()

        def task() -> None:
            try:
                found.set_result(work(*given))
            except BaseException as error:
                break_off(self._broken, error)
                found.set_exception(error)

        self._tasks.put(task)
        return found

    def _work(self) -> None:
        while (task := self._tasks.get()) and not self._broken.done():
            task()

    def close(self) -> None:
        """Let the threads end, and wait a moment for them."""
        for _ in self._threads:
            self._tasks.put(None)
        end = time.monotonic() + _GRACE_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))


def break_off(broken: Future[None], error: BaseException) -> None:
    """End all that share `broken`; the first reason counts."""
    with suppress(InvalidStateError):
        broken.set_exception(error)


def done(result: _T) -> Future[_T]:
    """What has come already, where others are waited for."""
    found: Future[_T] = Future()
    found.set_result(result)
    return found


def awaited(found: Future[_T], broken: Future[None]) -> _T:
    """What comes of it; raises at once what broke anything else."""
    both: tuple[Future[Any], ...] = (found, broken)
    wait(both, return_when=FIRST_COMPLETED)
    if broken.done():
        broken.result()
    return found.result()
