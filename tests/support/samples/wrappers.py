"""Running wrappers of the toolkit with programs that tell how they were called."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.samples.toolkitsource import TELL

CLEAN = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
_SHELLS_OWN = ("PWD=", "OLDPWD=", "SHLVL=", "_=")


def write_telling(folder: Path, *names: str) -> None:
    """Programs that print their name, words, folder and environment."""
    for name in names:
        (folder / name).write_text(TELL)
        (folder / name).chmod(0o755)


def modules(folder: Path, *, loaded: bool) -> str:
    """Write a file like /proc/modules, with or without NVIDIA's driver; returns its path."""
    path = folder / "modules"
    path.write_text(
        "nvidia_uvm 1 0 - Live 0x0\n"
        + ("nvidia 1 1 nvidia_uvm, Live 0x0\n" if loaded else "")
        + "xnvidia 1 0 - Live 0x0\n"
    )
    return str(path)


def call(
    shell: list[str],
    script: str,
    words: list[str],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> list[str]:
    """Lines that the program prints, without what shells themselves put into the environment."""
    done = subprocess.run(
        [*shell, "-c", script, "wrapper", *words],
        env={**CLEAN, **(environ or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if not line.startswith(_SHELLS_OWN)]


def same_everywhere(told: list[str], folder: Path) -> list[str]:
    """What a program told in a folder, in the words of a record: no path of this machine.

    A shell may hand on its environment in any order, so that the variables are sorted.
    """
    lines = [line.replace(str(folder), "@HERE@").replace(CLEAN["PATH"], "@PATH@") for line in told]
    words = lines[: lines.index("@HERE@") + 1]
    return [*words, *sorted(lines[len(words) :])]
