"""What `driverforge` prints. Nothing else of it does, so no text from elsewhere gets to a terminal as it is.

Servers, compilers and file names choose their words themselves (driverforge_core.printable).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from driverforge_core.printable import printable


def say(text: str, *, err: bool = False) -> None:
    """Print a text, on standard error with `err`; there nobody shall wait for it in a buffer."""
    stream = sys.stderr if err else sys.stdout
    # with standard error closed, print would write to standard output instead
    if stream is not None:
        print(printable(text), file=stream, flush=err)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines that are clean already, one by one as they are made: a plan may have 100,000."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
