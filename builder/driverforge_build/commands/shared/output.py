"""What `driverforge` prints. Nothing else of it does, so no text from elsewhere gets to a terminal as it is.

Servers, compilers and file names choose their words themselves (driverforge_core.printable).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile

from driverforge_core.errors import DriverforgeError
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


def wants_json(argv: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, also one that is wrong otherwise."""
    return "--json" in takewhile(lambda word: word != "--", argv)


def say_failure(error: Mapping[str, object]) -> None:
    """The document that stands in the answer's place: brief, details, resolution, exit_status."""
    say(json.dumps({"error": error}, indent=1))


def report(error: DriverforgeError, *, as_json: bool) -> int:
    """Tell what failed, people on standard error and programs on standard output; returns the exit status."""
    say(error.render(), err=True)
    if as_json:
        say_failure(error.document())
    return error.exit_code


def after_the_answer(action: Callable[[], object]) -> int:
    """Do what comes behind the answer. Returns 0, or the exit status of what failed, told to people alone."""
    try:
        action()
    except DriverforgeError as error:
        return report(error, as_json=False)
    return 0
