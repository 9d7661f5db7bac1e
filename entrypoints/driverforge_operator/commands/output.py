"""What `driverforge-operator` prints; nothing of it is a terminal's command, whoever wrote it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from driverforge_core.errors import DriverforgeError
from driverforge_core.printable import printable


def say(text: str) -> None:
    print(printable(text))


def say_document(document: Mapping[str, object]) -> None:
    """What `--json` prints; JSON's own escapes leave nothing that a terminal would act on."""
    print(json.dumps(document, indent=2))


def complain(error: DriverforgeError) -> None:
    print(error.render(), file=sys.stderr)
