"""An engine for the tests of this tier: the user's, else one of the bench's own, which ends with the test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from driverforge_core.errors import DriverforgeError
from support.engine import Engine, debian_base, find_or_start


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    try:
        found = find_or_start()
    except DriverforgeError as error:
        pytest.skip(f"no Docker engine: {error.brief}")
    if not found.host.startswith("unix://"):
        pytest.skip(f"the engine at {found.host} is on another machine, and could not reach the servers of these tests")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def bookworm(engine: Engine) -> str:
    """A base image with Debian 12 whose apt configuration names this machine's mirror."""
    return debian_base(engine, "bookworm")
