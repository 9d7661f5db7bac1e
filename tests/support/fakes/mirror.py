"""Mirrors behind the builder's real client, without its pauses.

A mirror of functions (httpx2's MockTransport) stands in the network's place; without one it is the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import httpx2

from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.fetcher import DownloadListener, Fetcher
from driverforge_build.fetch.web import GRACE_S, TIMEOUT_S, HttpxTransport
from driverforge_oci.transport import Following, Retrying

NOW = 1_800_000_000.0

Answer = Callable[[httpx2.Request], httpx2.Response]


def fetcher(
    folder: Path,
    answer: Answer | None = None,
    *,
    progress: DownloadListener | None = None,
    timeout: float = TIMEOUT_S,
    grace: float = GRACE_S,
    in_all: int = 0,
    now: Callable[[], datetime] | None = None,
    cache: Callable[[Path], Cache] = Cache,
) -> Fetcher:
    """A fetcher with its cache in a folder, on what `mirror_transport` makes; it takes no pause.

    `in_all` is how many requests a host may get, 0 for any number. `now` is the day of the answers.
    """
    wire = httpx2.MockTransport(answer) if answer else None
    web = HttpxTransport(os.environ, timeout=timeout, grace=grace, wire=wire, in_all=in_all)
    transport = Retrying(inner=Following(web), wait=lambda _: None, now=lambda: NOW)
    if now is None:
        return Fetcher(cache(folder), transport, progress=progress)
    return Fetcher(cache(folder), transport, progress=progress, now=now)
