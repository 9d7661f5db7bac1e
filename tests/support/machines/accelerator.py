"""What guests run on: KVM where it really boots one, else TCG, QEMU's emulation in software.

That /dev/kvm is there says little. On a virtual machine it is often there and broken, and then a guest hangs.
So a smallest guest is tried once. The answer is kept until the machine is booted again or gets another QEMU.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import signal
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from support import cache
from support.machines import initramfs, qemu
from support.machines.kernels import Image
from support.process import require, run, start, stop

DEVICE = Path("/dev/kvm")
LIMIT = 10.0  # seconds for the smallest guest; with KVM it takes one or two
_ANSWER = "the smallest guest is up"
_INIT = f"""#!/bin/busybox sh
echo '{_ANSWER}'
exec /bin/busybox poweroff -f
"""
_WORDS = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    # QEMU 7.2's TCG has a cmpxchg16b bug that 6.12's SLUB runs into (a panic in kmem_cache_alloc)
    "tcg": ("-accel", "tcg,thread=multi", "-cpu", "max,-cx16"),
}
_NAMES = {"kvm": "KVM", "tcg": "TCG, software emulation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """What guests run on, and why."""

    kind: Literal["kvm", "tcg"]
    why: str

    @property
    def words(self) -> tuple[str, ...]:
        """QEMU's command-line words."""
        return _WORDS[self.kind]

    def __str__(self) -> str:
        return f"{_NAMES[self.kind]} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How the smallest guest ended under KVM.

    It has QEMU's exit status (None where it had to be killed), the guest's console, and QEMU's own words.
    """

    status: int | None
    console: str
    said: str


def judge(trial: Trial) -> Accelerator:
    """What a trial means. Only a guest that ran a program counts: a kernel may start and hang later."""
    if _ANSWER in trial.console:
        return Accelerator(kind="kvm", why="a smallest guest booted with it")
    if trial.status is None:
        return Accelerator(
            kind="tcg", why=f"{DEVICE} is there, but a smallest guest did not answer within {LIMIT:.0f} s"
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


@functools.cache
def chosen(image: Image) -> Accelerator:
    """What guests run on here. A guest with this kernel is tried if none was since the machine's boot.

    Raises Unavailable where the parts of a guest are missing.
    """
    require(qemu.PROGRAM, "busybox", "setpriv", "prlimit")
    if found := without_device(DEVICE):
        return found

    def decide(folder: Path) -> None:
        (folder / "answer.json").write_text(json.dumps(asdict(judge(tried(image)))) + "\n")

    return _read(cache.cached("accelerator", _inputs(), decide))


def known() -> Accelerator | None:
    """What `chosen` has answered since the machine's boot, to say it at the end of a run; tries nothing."""
    if found := without_device(DEVICE):
        return found
    entry = cache.root() / "accelerator" / cache.key(_inputs())
    return _read(entry) if entry.is_dir() else None


def identity(accelerator: Accelerator) -> dict[str, object]:
    """What a saved guest depends on: the accelerator's terms, and the processor that it has seen."""
    host = [platform.release(), _processor()] if accelerator.kind == "kvm" else []
    return {"words": accelerator.words, "host": host}


def tried(image: Image, *, words: tuple[str, ...] = _WORDS["kvm"], limit: float = LIMIT) -> Trial:
    """Boot a kernel with a busybox that says a word and powers off.

    Nothing of it is left, whatever happens.
    """
    with tempfile.TemporaryDirectory(prefix="driverforge-trial-") as name:
        folder = Path(name)
        archive = initramfs.CpioArchive()
        archive.program(initramfs.busybox(), "bin/busybox")
        for place in ("dev", "proc"):
            archive.directory(place)
        archive.file("init", _INIT.encode(), mode=0o755)
        archive.write(folder / "initrd")
        console, log = folder / "console", folder / "qemu.log"
        # a QEMU that KVM's answers surprise aborts, and would leave a core file as large as the guest
        program = ["prlimit", "--core=0", qemu.PROGRAM]
        machine = [*program, *words, "-M", "q35", "-m", "256", "-nodefaults", "-no-user-config", "-no-reboot"]
        output = ["-display", "none", "-serial", f"file:{console}"]
        kernel = ["-kernel", str(image.vmlinuz), "-initrd", str(folder / "initrd")]
        append = ["-append", "console=ttyS0 panic=-1 mitigations=off nokaslr"]
        child = start([*machine, *output, *kernel, *append], log=log)
        status: int | None
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            # a guest that hangs hears nothing else
            stop(child, first=signal.SIGKILL)
        return Trial(
            status=status,
            console=console.read_text(errors="replace") if console.exists() else "",
            said=log.read_text(errors="replace"),
        )


def _inputs() -> dict[str, object]:
    """A boot ends an answer: the machine may be another one, or its hypervisor mended."""
    return {
        "qemu": run(qemu.PROGRAM, "--version").stdout.splitlines()[0],
        "kernel": [platform.release(), platform.version()],
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "limit": LIMIT,
    }


def _processor() -> str:
    """Model and features of this machine's first processor (proc_cpuinfo(5))."""
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    lines = [line for line in first.splitlines() if line.startswith(("model name", "stepping", "flags"))]
    return cache.key({"processor": lines})


def _read(entry: Path) -> Accelerator:
    return Accelerator(**json.loads((entry / "answer.json").read_text()))
