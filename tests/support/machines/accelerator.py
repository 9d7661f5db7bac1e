"""Which accelerator the bench's guests run on: the product's rules (engine/accelerator), asked once.

A smallest guest is tried once. The answer is kept until the machine is booted again or gets another QEMU.
"""

from __future__ import annotations

import functools
import json
import platform
import signal
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path

from driverforge_build.engine.accelerator import (
    DEVICE,
    LIMIT,
    Accelerator,
    Trial,
    judge,
    without_device,
)
from driverforge_build.verify.guest import CpioArchive
from support import cache
from support.machines import initramfs, qemu
from support.machines.kernels import Image
from support.process import require, run, start, stop

ARCH = "amd64"
_ANSWER = "the smallest guest is up"
_INIT = f"""#!/bin/busybox sh
echo '{_ANSWER}'
exec /bin/busybox poweroff -f
"""
_KVM = Accelerator(kind="kvm", why="for a trial").words(ARCH)


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
    return {"words": accelerator.words(ARCH), "host": host}


def tried(image: Image, *, words: tuple[str, ...] = _KVM, limit: float = LIMIT) -> Trial:
    """Boot a kernel with a busybox that says a word and powers off.

    Nothing of it is left, whatever happens.
    """
    with tempfile.TemporaryDirectory(prefix="driverforge-trial-") as name:
        folder = Path(name)
        archive = CpioArchive()
        initramfs.add_program(archive, initramfs.busybox(), "bin/busybox")
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
        answered = console.exists() and _ANSWER in console.read_text(errors="replace")
        return Trial(answered=answered, status=status, said=log.read_text(errors="replace"))


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
