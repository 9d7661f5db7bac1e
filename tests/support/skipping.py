"""Turn what is missing on a machine into a skip with its reason; what is broken stays an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from driverforge_core.errors import TemporaryFailure, Unavailable

T = TypeVar("T")


def provided(make: Callable[[], T]) -> T:
    """What `make` gives. The test is skipped if it raises Unavailable.

    A wait that timed out is a failure, not a missing part.
    """
    try:
        return make()
    except TemporaryFailure:
        raise
    except Unavailable as error:
        pytest.skip(f"{error.brief}{f' ({error.resolution})' if error.resolution else ''}")
