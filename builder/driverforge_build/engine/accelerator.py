"""What guests run on: KVM where it really boots one, else TCG, QEMU's emulation in software.

That /dev/kvm is there says little. On a virtual machine it is often there and broken, and then a guest hangs.
So a guest is tried.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DEVICE = Path("/dev/kvm")
LIMIT = 10.0
"""Seconds until a guest says its first word; with KVM it takes one or two."""
_WORDS = {
    ("kvm", "amd64"): ("-accel", "kvm", "-cpu", "host"),
    ("kvm", "arm64"): ("-accel", "kvm", "-cpu", "host"),
    # QEMU 7.2's TCG has a cmpxchg16b bug that 6.12's SLUB runs into (a panic in kmem_cache_alloc)
    ("tcg", "amd64"): ("-accel", "tcg,thread=multi", "-cpu", "max,-cx16"),
    ("tcg", "arm64"): ("-accel", "tcg,thread=multi", "-cpu", "max"),
}
_NAMES = {"kvm": "KVM", "tcg": "TCG, software emulation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """What guests run on, and why."""

    kind: Literal["kvm", "tcg"]
    why: str

    def words(self, arch: str) -> tuple[str, ...]:
        """QEMU's command-line words for guests of an architecture."""
        return _WORDS[self.kind, arch]

    def __str__(self) -> str:
        return f"{_NAMES[self.kind]} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a guest went under KVM.

    `answered`: whether a program of its own said something. QEMU's exit status is None where it had to be
    killed; `said` are QEMU's own words.
    """

    answered: bool
    status: int | None
    said: str


def judge(trial: Trial) -> Accelerator:
    """What a trial means. Only a guest that ran a program counts: a kernel may start and hang later."""
    if trial.answered:
        return Accelerator(kind="kvm", why="a guest booted with it")
    if trial.status is None:
        return Accelerator(
            kind="tcg", why=f"{DEVICE} is there, but a guest did not answer within {LIMIT:.0f} s"
        )
    first = (trial.said.strip().splitlines() or ["nothing"])[0]
    return Accelerator(
        kind="tcg", why=f"{DEVICE} is there, but QEMU ended with {trial.status} and said '{first}'"
    )


def without_device(device: Path) -> Accelerator | None:
    """TCG where KVM's device file is missing or may not be opened; None where a guest has to be tried."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return Accelerator(kind="tcg", why=f"{device}: {os.strerror(error.errno or 0)}")
    return None
