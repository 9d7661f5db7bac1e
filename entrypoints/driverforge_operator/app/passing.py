"""What servers say about one trouble, though each time in other words."""

from __future__ import annotations

import re

_PASSING = re.compile(
    r"""(?<=[\d\]]):\d+(?=->)  # a port, as Go has connections: 10.0.0.1:51234->10.0.0.2:443
    | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b  # a UUID: of a request
    | \b(?=[a-f]*\d)[0-9a-f]{16,}\b  # of a trace
    | \b\d{4}-\d\d-\d\dT[\d:.]+
    | \b\d{10,}\b  # seconds since 1970, or parts of them
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


def lasting(words: str) -> str:
    """The words without what is another each time. Who writes them into a status compares these."""
    return _PASSING.sub("", words)
