"""An engine for the tests of this tier: the user's, else one of the bench's own, which ends with the test run."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest

from support import cache
from support.engine import Engine, debian_base, find_or_start
from support.skipping import provided


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    found = provided(find_or_start)
    if not found.host.startswith("unix://"):
        pytest.skip(f"the engine at {found.host} is on another machine, and could not reach the servers of these tests")
    with (cache.root() / "engine.users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield found
        if found.owned:  # the worker that started it ends it, when no other worker uses it any more
            fcntl.flock(users, fcntl.LOCK_EX)
            found.stop()


@pytest.fixture(scope="session")
def bookworm(engine: Engine) -> str:
    """A base image with Debian 12 whose apt configuration names this machine's mirror."""
    return debian_base(engine, "bookworm")
