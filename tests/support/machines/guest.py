"""Kernel guests: a real Debian kernel under QEMU, scripts in, output and exit status out.

There are three kinds of root. `busybox` is an initramfs and boots in 2-3 s. `agent` is a Debian root file
system with our agent as PID 1: Python, bash, kmod, no services. `systemd` is the same root, booted to
multi-user with containerd. Each can be booted afresh, or resumed from a state that was saved once and is kept
in the cache.

An agent in the guest listens on the second serial port. Files come as a tar on a virtio disk. A guest has no
network unless its machine says so, and its disks forget all writes when it stops. Guests run under KVM where
it works, else under TCG (`support.machines.accelerator`). The clock of a TCG guest jumps under load: never
assert on it.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Literal, final

from driverforge_core.errors import CommandFailed, TemporaryFailure
from support import cache
from support.machines import accelerator, initramfs, qemu
from support.machines.guest_scripts import AGENT, INIT, PRELUDE
from support.machines.kernels import Image
from support.machines.secureboot import Firmware
from support.process import require, run, stop, tail

PAYLOAD_SIZE = 2 << 30  # bytes, sparse
# bytes, sparse: a disk that is put in after the state was saved needs the size that the state saw
LATE_SIZE = 16 << 30
_BLOCK = 65536  # bytes the agent reads at once
_SCRIPT_LIMIT = 32 << 10  # bytes: a serial line has no flow control, and the guest's tty buffers 64 KiB

Content = Path | bytes | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """An ext4 image in the guest.

    A `late` one is mounted by `Guest.mount`, so a saved state fits any content of it.
    """

    name: str  # at most 20 bytes
    file: Path | None = None  # None only for a late disk that this guest goes without
    mount: str = ""  # where the guest mounts it at boot; '/' is the root file system
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is booted.

    `memory` is in MiB. `append` goes to the kernel's command line. `modules` are in-tree ones for the
    initramfs.
    """

    image: Image
    init: Literal["busybox", "agent", "systemd"] = "busybox"
    modules: tuple[str, ...] = ()
    append: str = ""
    memory: int = 1024
    cpus: int = 1
    disks: tuple[Disk, ...] = ()
    network: bool = False  # a card, whose network ends at this machine (qemu.HERE)
    service: int = 0  # the port of this machine that qemu.SERVICE leads to
    reboots: bool = False  # the guest's reboot is one, and does not end it
    firmware: Firmware | None = None  # one that starts signed kernels only


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestResult:
    """A script that ended in a guest.

    `output` is stdout and stderr as they came. `console` is the kernel's, from the boot on.
    """

    rc: int
    output: str
    console: str

    def ok(self) -> str:
        """The output; raises CommandFailed with it and the console's end unless the status is 0."""
        if self.rc != 0:
            raise CommandFailed(
                f"the guest's script exited with {self.rc}",
                details=[self.output, *self.console.splitlines()[-15:]],
            )
        return self.output


@final
class Guest:
    """A running guest; a context manager. Make it with `Guest.start`."""

    def __init__(self, machine: Machine, folder: Path, drives: list[qemu.Drive], more: list[str]) -> None:
        self.machine = machine
        self._folder = folder
        self._log = folder / "qemu.log"
        self.accelerator = accelerator.chosen(machine.image)
        words = qemu.arguments(
            accelerator=self.accelerator.words(accelerator.ARCH),
            memory=machine.memory,
            cpus=machine.cpus,
            folder=folder,
            drives=drives,
            network=machine.network,
            service=machine.service,
            reboots=machine.reboots,
        )
        self._child = qemu.launch([*words, *more], folder)
        try:
            self.control = qemu.Control(folder / "qmp", self._child, self._log)
            self._channel = qemu.dial(folder / "serial", self._child, self._log)
        except BaseException:
            stop(self._child)
            raise
        self._pending = b""
        self._count = 0

    @staticmethod
    def start(machine: Machine, *, saved: bool = True, timeout: float = 300) -> Guest:
        """Boot a machine, or resume its saved state, which is made at the first call.

        Returns when the agent answers.
        """
        require(qemu.PROGRAM, "setpriv", *(["qemu-img"] if saved and machine.disks else []))
        state = _saved_state(machine) if saved else None
        folder = Path(tempfile.mkdtemp(prefix="driverforge-guest-"))
        try:
            guest = _resumed(machine, state, folder) if state else _booted(machine, folder)
        except BaseException:
            shutil.rmtree(folder)
            raise
        try:
            if state:
                qemu.resume(guest.control)
                guest._command(f"clock {time.time():.0f}", timeout=60)
            else:
                guest._expect(rb"\x01READY\n", timeout)
        except BaseException:
            guest.stop()
            raise
        return guest

    def __enter__(self) -> Guest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def console(self) -> str:
        """What the kernel wrote to its console since the boot (since the resume, for a saved one)."""
        return (self._folder / "console").read_text(errors="replace").replace("\r", "")

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def put(self, files: Mapping[str, Content], *, timeout: float = 120) -> None:
        """Copy files and folders into the guest: guest path → path here, or the content itself.

        Executable bits are kept.
        """
        size = _write_payload(self._folder / "payload", files)
        self._command(f"files {size // _BLOCK + 1}", timeout=timeout)

    def mount(self, disk: str, target: str, *, timeout: float = 60) -> None:
        """Mount a late disk."""
        self._command(f"mount {disk} {target}", timeout=timeout)

    def run(
        self, script: str, *, timeout: float = 300, on_output: Callable[[str], None] | None = None
    ) -> GuestResult:
        """Run a shell script (busybox sh or bash) as root, with an empty stdin.

        `on_output` gets each line as it comes. Raises TemporaryFailure after `timeout` seconds, CommandFailed
        when the guest dies. Both have the output and the console.
        """
        data = script.encode()
        if len(data) > _SCRIPT_LIMIT:
            raise ValueError(f"a script of {len(data)} bytes: use put() for anything above {_SCRIPT_LIMIT}")
        self._count += 1
        self._channel.sendall(f"run {self._count} {len(data)}\n".encode())
        self._expect(rb"\x01SEND\n", timeout)
        self._channel.sendall(data)
        output, status = self._expect(rb"\x01DONE %d (\d+)\n" % self._count, timeout, on_output)
        return GuestResult(rc=int(status), output=output, console=self.console)

    def reboot(self, *, timeout: float = 300) -> None:
        """Let systemd shut the node down and boot it again. What was written to its disks is there.

        Returns when the agent answers. Late disks are not mounted any more.
        """
        if not self.machine.reboots:
            raise ValueError("this machine does not reboot")
        self.run("systemctl reboot").ok()
        self._expect(rb"\x01READY\n", timeout)

    def stop(self, *, keep_console: Path | None = None) -> None:
        """Pull the plug; nothing of the guest stays but, if asked for, its console."""
        if not self._folder.exists():
            return
        if keep_console:
            shutil.copy(self._folder / "console", keep_console)
        self._channel.close()
        self.control.close()
        self._child.kill()
        self._child.wait()
        shutil.rmtree(self._folder)

    def _command(self, line: str, *, timeout: float) -> None:
        self._channel.sendall(line.encode() + b"\n")
        output, status = self._expect(rb"\x01OK (\d+)\n", timeout)
        if status != "0":
            raise CommandFailed(f"the guest could not do '{line}'", details=[output])

    def _expect(
        self, pattern: bytes, timeout: float, on_output: Callable[[str], None] | None = None
    ) -> tuple[str, str]:
        """Read until `pattern`: what came before it, and its group."""
        end, shown = time.monotonic() + timeout, 0
        while not (found := re.search(pattern, self._pending)):
            if on_output and (last := self._pending.rfind(b"\n") + 1) > shown:
                for line in self._pending[shown:last].splitlines():
                    on_output(line.decode(errors="replace"))
                shown = last
            self._channel.settimeout(max(0.01, end - time.monotonic()))
            try:
                chunk = self._channel.recv(65536)
            except TimeoutError:
                raise TemporaryFailure(
                    f"the guest did not answer within {timeout:.0f} s", details=self._evidence()
                ) from None
            except ConnectionError:
                chunk = b""
            if not chunk:
                self._child.wait(timeout=30)  # then its console is complete
                raise CommandFailed("the guest died", details=self._evidence())
            self._pending += chunk
        before, self._pending = self._pending[: found.start()], self._pending[found.end() :]
        if on_output and before[shown:]:
            for line in before[shown:].splitlines():
                on_output(line.decode(errors="replace"))
        return before.decode(errors="replace"), found[1].decode() if found.groups() else ""

    def _evidence(self) -> list[str]:
        return [self._pending.decode(errors="replace"), *self.console.splitlines()[-60:], *tail(self._log)]


def once(
    machine: Machine,
    script: str,
    *,
    files: Mapping[str, Content] | None = None,
    saved: bool = True,
    timeout: float = 300,
) -> GuestResult:
    """Start a guest, give it files, run one script, stop it."""
    with Guest.start(machine, saved=saved) as guest:
        if files:
            guest.put(files)
        return guest.run(script, timeout=timeout)


def _booted(machine: Machine, folder: Path) -> Guest:
    drives = [_payload_drive(folder)]
    for disk in machine.disks:
        if disk.file is not None:
            drives.append(qemu.Drive(serial=disk.name, file=disk.file))
        elif disk.late:
            drives.append(_placeholder(disk, folder))
    firmware = machine.firmware.words(folder) if machine.firmware else []
    return Guest(machine, folder, drives, [*_kernel_arguments(machine), *firmware])


def _kernel_arguments(machine: Machine) -> list[str]:
    append = f"console=ttyS0 panic=-1 loglevel=7 mitigations=off nokaslr {machine.append}"
    return ["-kernel", str(machine.image.vmlinuz), "-initrd", str(_initrd(machine)), "-append", append]


def _resumed(machine: Machine, state: Path, folder: Path) -> Guest:
    drives = [_payload_drive(folder)]
    for disk in machine.disks:
        if not disk.late:
            drives.append(qemu.Drive(serial=disk.name, file=state / f"{disk.name}.qcow2", kind="qcow2"))
        else:
            drives.append(
                qemu.Drive(serial=disk.name, file=disk.file) if disk.file else _placeholder(disk, folder)
            )
    return Guest(machine, folder, drives, ["-incoming", f"exec:cat {state / 'ram'}"])


def _placeholder(disk: Disk, folder: Path) -> qemu.Drive:
    file = folder / f"{disk.name}.empty"
    sparse(file, LATE_SIZE)
    return qemu.Drive(serial=disk.name, file=file)


def _saved_state(machine: Machine) -> Path:
    disks = [
        (disk.name, disk.mount, disk.late, None if disk.late else str(disk.file)) for disk in machine.disks
    ]
    inputs = {
        "initrd": str(_initrd(machine)),
        "arguments": [_kernel_arguments(machine), machine.memory, machine.cpus],
        "parts": [machine.network, machine.service, machine.reboots],
        "qemu": run(qemu.PROGRAM, "--version").stdout.splitlines()[0],
        "accelerator": accelerator.identity(accelerator.chosen(machine.image)),
        "disks": disks,
        "late": LATE_SIZE,
        "payload": PAYLOAD_SIZE,
    }
    return cache.cached("guest", inputs, lambda folder: _save(machine, folder))


def _save(machine: Machine, target: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="driverforge-guest-"))
    drives = [_payload_drive(folder)]
    for disk in machine.disks:
        if disk.late or disk.file is None:
            drives.append(_placeholder(disk, folder))
            continue
        layer = target / f"{disk.name}.qcow2"
        run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", disk.file, layer)
        drives.append(qemu.Drive(serial=disk.name, file=layer, kind="qcow2", discard_writes=False))
    guest = None
    try:
        guest = Guest(machine, folder, drives, _kernel_arguments(machine))
        guest._expect(rb"\x01READY\n", 300)
        qemu.save(guest.control, guest._child, target / "ram")
    finally:
        if guest is not None:
            guest.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _initrd(machine: Machine) -> Path:
    """The guest's first root, cached. Its modules: what was asked for and what its disks need."""
    modules = ("virtio_pci", "virtio_blk", *(["ext4"] if machine.disks else []), *machine.modules)
    mounts = "".join(f"{disk.name} {disk.mount}\n" for disk in machine.disks if disk.mount and not disk.late)
    files = {
        "init": INIT[machine.init].encode(),
        "agent": AGENT.encode(),
        "etc/prelude": PRELUDE.encode(),
        "etc/disks": mounts.encode(),
    }
    programs = [Path(shutil.which(name) or f"/bin/{name}") for name in ("busybox", "kmod")]
    require("busybox", "kmod", "depmod")
    inputs = {
        "kernel": [machine.image.release, machine.image.version],
        "modules": modules,
        "files": {name: data.decode() for name, data in files.items()},
        "programs": cache.digest(*programs),
    }

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            initramfs.base(machine.image, modules=modules, files=files, scratch=Path(scratch)).write(
                folder / "initrd"
            )

    return cache.cached("initrd", inputs, make) / "initrd"


def _payload_drive(folder: Path) -> qemu.Drive:
    sparse(folder / "payload", PAYLOAD_SIZE)
    return qemu.Drive(serial="payload", file=folder / "payload", read_only=True)


def sparse(file: Path, size: int) -> None:
    """Make a file of `size` bytes that takes no space yet, or grow one to it."""
    with file.open("ab") as out:
        out.truncate(size)


def _write_payload(target: Path, files: Mapping[str, Content]) -> int:
    """Write a tar to the start of the payload disk; returns its bytes."""
    with target.open("r+b") as out:
        out.truncate(0)
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name, content in files.items():
                _add(archive, name.strip("/"), content)
        size = out.tell()
        if size > PAYLOAD_SIZE - _BLOCK:
            raise ValueError(f"{size} bytes of files for a guest; at most {PAYLOAD_SIZE}")
        out.truncate(PAYLOAD_SIZE)
    return size


def _add(archive: tarfile.TarFile, name: str, content: Content) -> None:
    """Add files and links only, no folders.

    A folder's own entry would replace a link to a folder (/lib → usr/lib) in the guest.
    """
    if isinstance(content, Path):
        if content.is_dir() and not content.is_symlink():
            for child in sorted(content.iterdir()):
                _add(archive, f"{name}/{child.name}", child)
        else:
            archive.add(content, name, recursive=False)
        return
    data = content.encode() if isinstance(content, str) else content
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = (
        len(data),
        0o755 if data.startswith(b"#!") else 0o644,
        int(time.time()),
    )
    archive.addfile(entry, BytesIO(data))
