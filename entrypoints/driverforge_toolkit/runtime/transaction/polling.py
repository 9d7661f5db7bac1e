"""Asking again and again, for a time."""

from __future__ import annotations

from collections.abc import Iterator

from driverforge_host.ports import Clock


def poll(clock: Clock, patience: float, *, every: float) -> Iterator[None]:
    """At once, and then every `every` seconds, until `patience` seconds have passed."""
    end = clock.monotonic() + patience
    yield
    while clock.monotonic() < end:
        clock.pause(every)
        yield
