"""What a user's command was given, and commands that we print for the user to run.

These name the same inputs as the command that the user gave, quoted for a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

LOCK_FILE = Path("driverforge.lock.json")
"""Which lock file a command means that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The inputs of the command that runs now.

    `bases` maps OSes to images, `artifacts` and `wheels` architectures to folders. `certificate` is that of
    the key which signs modules, None where nothing does.
    """

    matrix: Path | None = None
    lock: Path = LOCK_FILE
    bases: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    wheels: Mapping[str, str] = field(default_factory=dict)
    certificate: Path | None = None

    @property
    def options(self) -> list[str]:
        """The inputs that every command of these takes."""
        words = ["--matrix", str(self.matrix)] if self.matrix is not None else []
        if self.lock != LOCK_FILE:
            words += ["--lock", str(self.lock)]
        return words + [word for key, value in self.bases.items() for word in ("--base", f"{key}={value}")]

    def command(
        self, name: Literal["lock", "build", "push"], *, select: Sequence[str] = (), skip: Sequence[str] = ()
    ) -> str:
        """The command line of another command with the same inputs, as far as that command has them."""
        words = ["driverforge", name, *self.options]
        if name != "lock":
            words += ["--sign-certificate", str(self.certificate)] if self.certificate else []
            words += [
                word
                for option, named in (("toolkit-artifacts", self.artifacts), ("operator-wheels", self.wheels))
                for key, value in named.items()
                for word in (f"--{option}", f"{key}={value}")
            ]
        words += [word for glob in select for word in ("--select", glob)]
        words += [word for glob in skip for word in ("--skip", glob)]
        return shlex.join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which cells, from which inputs: what a user tells `build` and `push` alike."""

    given: Given = field(default_factory=Given)
    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How a user wants images built.

    `workers` is for each engine. `retries`: further attempts for a cell that failed for a passing reason.
    `ca` serves downloads only. `cache_from`, `cache_to`: as LayerCache has them. `archives` are files of
    NVIDIA's, which a build that wants one need not download. With `no_compile_cache` nothing is taken of what
    earlier compilations left on the builder.
    """

    vcs_ref: str = ""
    workers: int = 2
    keep_going: bool = False
    ca: Path | None = None
    network: str = ""
    no_cache: bool = False
    no_compile_cache: bool = False
    retries: int = 2
    cache_from: tuple[str, ...] = ()
    cache_to: str = ""
    archives: tuple[Path, ...] = ()
