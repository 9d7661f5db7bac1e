"""What is logged while a block runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from driverforge_core.log import LOGGER


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def heard(level: int = logging.WARNING) -> Iterator[list[str]]:
    """Messages of this level and above, whatever a command line that ran before did to the logger."""
    listener, before = _Listener(), LOGGER.level
    listener.setLevel(level)
    LOGGER.addHandler(listener)
    LOGGER.setLevel(level)
    try:
        yield listener.said
    finally:
        LOGGER.removeHandler(listener)
        LOGGER.setLevel(before)
