"""Guests under QEMU: one kernel, one first root in memory, two serial ports, and nothing else.

The first port is the kernel's console and goes to a file. The second one is what the guest says.
"""

from __future__ import annotations

import platform
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.engine import process
from driverforge_build.engine.accelerator import DEVICE, LIMIT, Accelerator, Trial, judge, without_device
from driverforge_build.ports import GuestBoot, GuestEnd, GuestRun, StepListener
from driverforge_core.arch import to_machine
from driverforge_core.errors import CommandFailed, Unavailable

_INTERPRETER = 3
"""Type of the program header that a dynamic program has (PT_INTERP, elf(5))."""
_ELF_MACHINES = {"amd64": 62, "arm64": 183}
"""EM_X86_64 and EM_AARCH64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Platform:
    """What differs between the machines that QEMU makes: `second` are the words for the second port."""

    program: str
    package: str
    machine: str
    console: str
    results: str
    second: tuple[str, ...]


_PLATFORMS: Mapping[str, _Platform] = {
    "amd64": _Platform(
        program="qemu-system-x86_64",
        package="qemu-system-x86",
        machine="q35",
        console="ttyS0",
        results="ttyS1",
        second=("-serial", "chardev:results"),
    ),
    "arm64": _Platform(
        program="qemu-system-aarch64",
        package="qemu-system-arm",
        machine="virt",
        console="ttyAMA0",
        # the board has one port of its own
        results="ttyS0",
        second=("-device", "pci-serial,chardev=results"),
    ),
}


class QemuGuests:
    """Guests of this machine's QEMU. Several threads may share one.

    `shells` maps an architecture to a static busybox for it; of this machine's architecture there may be one
    on PATH.
    """

    def __init__(self, shells: Mapping[str, Path] | None = None, *, device: Path = DEVICE) -> None:
        self._shells = shells or {}
        self._device = device
        self._lock = threading.Lock()
        self._decided: Accelerator | None = None

    def busybox(self, arch: str) -> bytes:
        there = _PLATFORMS[arch]
        gone = [name for name in (there.program, "setpriv", "prlimit") if shutil.which(name) is None]
        if gone:
            raise Unavailable(
                f"guests cannot be booted here: not installed: {', '.join(gone)}",
                resolution=f"install QEMU for {to_machine(arch)} and util-linux (Debian, Ubuntu: "
                f"apt-get install {there.package} util-linux)",
            )
        named = self._shells.get(arch)
        native = platform.machine() == to_machine(arch)
        path = named or (Path(shutil.which("busybox") or "") if native else Path())
        if path.is_file() and _is_static(content := path.read_bytes(), arch):
            return content
        found = f"{path} is no static program for it" if path.is_file() else "there is none on PATH"
        raise Unavailable(
            f"guests of {arch} need a static busybox: "
            + (found if named or native else f"this machine's would be for {platform.machine()}"),
            resolution="install busybox-static, or name one with --busybox FILE"
            if native
            else f"apt-get download busybox-static:{arch}, dpkg-deb -x it, and name it with --busybox FILE",
        )

    def run(self, boot: GuestBoot, on_line: StepListener) -> GuestRun:
        version = process.output([_PLATFORMS[boot.arch].program, "--version"])[1].split()
        name = f"QEMU {version[3]}" if len(version) > 3 else "QEMU"
        if accelerator := self._accelerator(boot.arch):
            return GuestRun(end=_boot(boot, accelerator, on_line), machine=f"{name}, {accelerator}")
        with self._lock:
            # another thread may have found out meanwhile
            accelerator = self._accelerator(boot.arch)
            if accelerator is None:
                tried, accelerator = _try_kvm(boot, on_line)
                self._decided = accelerator
                if tried is not None:
                    return GuestRun(end=tried, machine=f"{name}, {accelerator}")
        return GuestRun(end=_boot(boot, accelerator, on_line), machine=f"{name}, {accelerator}")

    def _accelerator(self, arch: str) -> Accelerator | None:
        """What guests of an architecture run on; None where one has to be tried first."""
        if platform.machine() != to_machine(arch):
            return Accelerator(kind="tcg", why=f"this machine is {platform.machine()}")
        return self._decided or without_device(self._device)


def _try_kvm(boot: GuestBoot, on_line: StepListener) -> tuple[GuestEnd | None, Accelerator]:
    """The guest itself is the trial. Its end, None where it has to be booted again without KVM."""
    heard = threading.Event()

    def first(line: str) -> None:
        heard.set()
        on_line(line)

    with tempfile.TemporaryDirectory(prefix="driverforge-guest-") as folder:
        errors = Path(folder) / "errors"
        words = arguments(boot, Accelerator(kind="kvm", why=""))
        # a guest that has answered may take its time
        status = process.follow(
            words, errors=errors, silence=lambda: boot.silence if heard.is_set() else LIMIT, on_line=first
        )
        said = errors.read_text(errors="replace")
    found = judge(Trial(answered=heard.is_set(), status=status, said=said))
    if found.kind == "tcg":
        return None, found
    return GuestEnd.SILENT if status is None else GuestEnd.OFF, found


def _boot(boot: GuestBoot, accelerator: Accelerator, on_line: StepListener) -> GuestEnd:
    with tempfile.TemporaryDirectory(prefix="driverforge-guest-") as folder:
        errors = Path(folder) / "errors"
        words = arguments(boot, accelerator)
        status = process.follow(words, errors=errors, silence=lambda: boot.silence, on_line=on_line)
        if status:
            raise CommandFailed(
                f"QEMU exited with {status}",
                details=[" ".join(words), *errors.read_text(errors="replace").splitlines()[-10:]],
                resolution="look whether this QEMU boots any guest; a newer one may",
            )
    return GuestEnd.SILENT if status is None else GuestEnd.OFF


def arguments(boot: GuestBoot, accelerator: Accelerator) -> list[str]:
    """QEMU's command line. A panic ends it: panic=-1 reboots, and -no-reboot takes that for the end."""
    there = _PLATFORMS[boot.arch]
    append = f"console={there.console} panic=-1 oops=panic driverforge.results={there.results} {boot.append}"
    return [
        *(there.program, *accelerator.words(boot.arch), "-M", there.machine, "-m", str(boot.memory)),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-serial", f"file:{boot.console}", "-chardev", "stdio,id=results,signal=off", *there.second),
        *("-kernel", str(boot.kernel), "-initrd", str(boot.first_root), "-append", append),
    ]


def _is_static(program: bytes, arch: str) -> bool:
    """Whether a program is an ELF file for an architecture that no interpreter has to load."""
    if program[:6] != b"\x7fELF\x02\x01" or _number(program, 0x12) != _ELF_MACHINES[arch]:
        return False
    table = int.from_bytes(program[0x20:0x28], "little")
    size, count = _number(program, 0x36), _number(program, 0x38)
    return all(_number(program, table + index * size) != _INTERPRETER for index in range(count))


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")
