"""Finished kernel modules for a distribution's packages: the bench's mocks, really compiled."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.process import run
from support.samples.tinydriver import MODULES


@contextmanager
def compiled(source: Path, output: Path, *, compiler: str, version: str) -> Iterator[Path]:
    """A folder with the objects and modules of a driver version, for the headers in `source` and `output`.

    The compiler is this machine's.
    """
    with tempfile.TemporaryDirectory(prefix="df-likes-", dir="/var/tmp") as name:
        work = Path(name, "mock")
        shutil.copytree(MODULES, work)
        words = [f"KBUILD_OUTPUT={output}", f"M={work}", f"CC={compiler}", f"MOCK_VERSION={version}"]
        run("make", "-s", "-C", source, *words, "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules")
        run("strip", "--strip-debug", *sorted(work.glob("*.ko")))
        yield work


def copy(work: Path, target: Path, pattern: str = "nvidia*.ko") -> None:
    target.mkdir(parents=True)
    for path in work.glob(pattern):
        shutil.copy(path, target)
