"""Logs: one event a line on stderr, as `key=value` text or as JSON.

`step("…")` times a stretch of work and nests; its fields go along with every event inside it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LOGGER = logging.getLogger("driverforge")
_path: ContextVar[tuple[str, ...]] = ContextVar("step", default=())


def quote(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n\t') else text


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {"step": "/".join(_path.get()), **getattr(record, "fields", {})}
        pairs = [f"{key}={quote(value)}" for key, value in fields.items() if value != ""]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        return " ".join([f"{stamp} {record.levelname.lower()}", record.getMessage(), *pairs])


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = {"time": record.created, "level": record.levelname.lower(), "message": record.getMessage()}
        if _path.get():
            event["step"] = "/".join(_path.get())
        return json.dumps({**event, **getattr(record, "fields", {})}, ensure_ascii=False, default=str)


def configure(form: str) -> None:
    """Send events to stderr; `form` is 'text' or 'json'. A second call replaces the first."""
    # stdout is for what a command was asked to print
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    LOGGER.handlers[:] = [handler]
    LOGGER.propagate = False
    LOGGER.setLevel(logging.INFO)


def info(message: str, **fields: object) -> None:
    LOGGER.info(message, extra={"fields": fields})


def warning(message: str, **fields: object) -> None:
    LOGGER.warning(message, extra={"fields": fields})


def error(message: str, **fields: object) -> None:
    LOGGER.error(message, extra={"fields": fields})


@contextmanager
def step(name: str) -> Iterator[None]:
    """Name a stretch of work: events inside carry it, and its end says how long it took."""
    token = _path.set((*_path.get(), name))
    start = time.monotonic()
    try:
        yield
        info("done", seconds=round(time.monotonic() - start, 2))
    finally:
        _path.reset(token)
