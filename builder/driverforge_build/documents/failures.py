"""What failed, as JSON: in every document, and alone where the command itself failed."""

from __future__ import annotations

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import TypedDict

from driverforge_core.errors import DriverforgeError


class Failure(TypedDict):
    """What failed: one sentence, the evidence a line an entry, the next step ('' where there is none)."""

    brief: str
    details: list[str]
    resolution: str
    exit_status: int


def failure(error: DriverforgeError) -> Failure:
    return {
        "brief": error.brief,
        "details": list(error.details),
        "resolution": error.resolution,
        "exit_status": error.exit_code,
    }


class FailureDocument(TypedDict):
    """What `--json` prints where the command itself failed, whichever command."""

    error: Failure
