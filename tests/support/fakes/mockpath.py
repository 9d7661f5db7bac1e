"""Mock commands: real executables in a folder that comes first on PATH. The idea is osbuild's.

They are forked and executed like the real ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MockPath:
    """A folder of mock commands.

    Each is a sh script. It logs its arguments, one call a line, to NAME.calls beside it.
    """

    folder: Path

    def add(self, name: str, script: str = "") -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        program = self.folder / name
        program.write_text(f'#!/bin/sh\necho "$*" >>{self.folder}/{name}.calls\n{script}\n')
        program.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        """The arguments of each call, oldest first."""
        log = self.folder / f"{name}.calls"
        return log.read_text().splitlines() if log.exists() else []

    def environ(self, extra: Mapping[str, str] | None = None, *, only: bool = False) -> dict[str, str]:
        """An environment with these commands first on PATH; with `only`, alone on it."""
        path = str(self.folder) if only else f"{self.folder}:{os.environ['PATH']}"
        return {"PATH": path, **(extra or {})}
