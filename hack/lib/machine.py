"""What the quickstart needs of this machine, what it puts where, and how all of it goes away again."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    path: Path
    holds: str
    size: str


def places(work: Path, cache: Path) -> tuple[Place, ...]:
    """Every folder that a run writes to, with what it holds and about how much."""
    return (
        Place(path=work, holds="lock file, contexts, logs, the registry's blobs, virtual environment", size="1.5 GB"),
        Place(path=cache, holds="packages, kernels, root file systems, container engine and its images", size="6 GB"),
    )


def shortcomings() -> list[str]:
    """What is missing for the whole run, a sentence each."""
    found = []
    if os.geteuid() != 0:
        found.append("not root: package installation, the container engine and disk images need it")
    if shutil.which("apt-get") is None:
        found.append("no apt-get: the quickstart's parts come from Debian's repositories")
    return found
