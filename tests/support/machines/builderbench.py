"""Calling `driverforge` as a user does, against the engine of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from driverforge_build.lock.file import load_lock
from driverforge_build.lock.pins import Lock
from driverforge_core.errors import DriverforgeError
from support import cache
from support.machines.engine import Engine
from support.process import run

ROOT = Path(__file__).resolve().parents[3]
COMMAND = (sys.executable, "-c", "from driverforge_build.cli import main; main()")
PACKAGES = {"PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("builder", "entrypoints"))}


def real_lock(os: str = "debian12", arch: str = "amd64") -> Lock:
    """The pins of today's Debian with driver 535, by the program's own discovery.

    The test is skipped where no mirror answers.
    """
    path = cache.root() / f"tests-{os}-{arch}.lock.json"
    with cache.locked(path.with_suffix(".lock")):
        try:
            select = ["--select", f"{os}-{arch}-535*", "--keep-going"]
            run(
                *COMMAND,
                "lock",
                *select,
                "--lock",
                path,
                "--cache-dir",
                cache.root() / "discovery",
                env=PACKAGES,
            )
        except DriverforgeError as error:
            pytest.skip(f"no Debian mirror to lock from: {error.details[-1]}")
        return load_lock(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderBench:
    """`base` is the engine's image of the system `os`; contexts, logs and all else goes below `folder`."""

    engine: Engine
    base: str
    os: str = "debian12"
    folder: Path
    lock: Path
    matrix: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def driverforge(
        self, *words: str | Path, check: bool = True, based: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run `driverforge` with this bench's lock, base and matrix.

        With `check` a failure fails the test, with the program's messages.
        """
        given = ["--lock", self.lock, *(["--matrix", self.matrix] if self.matrix else [])]
        given += ["--base", f"{self.os}={self.base}"] if based else []
        environment = {**os.environ, **PACKAGES, **self.engine.environment(), **self.environment}
        environment["DRIVERFORGE_CACHE"] = str(self.folder / "cache")
        command = [*COMMAND, *map(str, (*words, *given))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if check and done.returncode:
            pytest.fail(f"{' '.join(command)} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def forget(self, *references: str) -> None:
        """Take images out of the engine, which may be the user's; its build cache keeps the steps."""
        self.engine.docker("image", "rm", "--force", *references, check=False)

    def in_image(self, reference: str, script: str) -> str:
        """What a script prints in a container of an image."""
        return self.engine.docker(
            "run", "--rm", "--network", "none", "--entrypoint", "sh", reference, "-ec", script
        ).stdout
