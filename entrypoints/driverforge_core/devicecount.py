"""How many devices a node offers, as Kubernetes writes the number.

A count is a quantity in its canonical form (Kubernetes documentation, "Quantity"): 1000 shared GPUs are '1k'.
"""

from __future__ import annotations

import re

_COUNT = re.compile(r"([0-9]+)([kMG]?)")
_THOUSANDS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def device_count(quantity: object) -> int:
    """The number; 0 for what is none of devices."""
    found = _COUNT.fullmatch(str(quantity))
    return int(found[1]) * _THOUSANDS[found[2]] if found else 0
