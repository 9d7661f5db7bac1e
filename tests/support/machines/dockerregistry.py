"""Debian's docker-registry on a free port of the loopback, where engines push to without TLS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.process import require, start, stop, until

_CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {data}}}}}
http: {{addr: "127.0.0.1:0"}}
"""
_LISTENING = re.compile(r"listening on (127\.0\.0\.1:\d+)")


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """An empty registry with its data below `folder`, as HOST:PORT.

    Raises Unavailable where the program is not installed.
    """
    require("docker-registry")
    folder.mkdir(parents=True, exist_ok=True)
    config, log = folder / "config.yml", folder / "registry.log"
    config.write_text(_CONFIG.format(data=folder / "data"))
    child = start(["docker-registry", "serve", config], log=log)
    try:
        until(
            lambda: bool(_LISTENING.search(log.read_text())), "docker-registry listens", child=child, log=log
        )
        found = _LISTENING.search(log.read_text())
        assert found
        yield found[1]
    finally:
        stop(child)
