"""JSON that a registry, a token service or a configuration file gave us."""

from __future__ import annotations

import json
from typing import Any


def parse(text: bytes | str) -> Any:
    """The value in a JSON text. Raises ValueError, also for one that is nested too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
