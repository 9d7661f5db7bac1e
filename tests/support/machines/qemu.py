"""QEMU as a process: the flags that every guest has, its control socket, saving and resuming a machine."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driverforge_core.errors import CommandFailed, TemporaryFailure
from support.process import start, until

PROGRAM = "qemu-system-x86_64"
HERE = "10.0.2.2"  # what a guest with a card calls this machine's 127.0.0.1 (QEMU's user network)
SERVICE = "10.0.2.1"  # the address, port 443, that a machine with a `service` has on that network
_CARD = "card"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """A virtio disk; the guest finds it by its serial number."""

    serial: str  # at most 20 bytes
    file: Path
    kind: str = "raw"  # 'raw' or 'qcow2'
    discard_writes: bool = True  # 'snapshot=on': writes go to a temporary file
    read_only: bool = False

    def options(self) -> list[str]:
        """Command-line words."""
        flags = ",readonly=on" if self.read_only else ",snapshot=on" if self.discard_writes else ""
        drive = f"if=none,id={self.serial},file={self.file},format={self.kind},cache=unsafe{flags}"
        return ["-drive", drive, "-device", f"virtio-blk-pci,drive={self.serial},serial={self.serial}"]


def arguments(
    *,
    accelerator: Sequence[str],
    memory: int,
    cpus: int,
    folder: Path,
    drives: list[Drive],
    network: bool = False,
    service: int = 0,
    reboots: bool = False,
) -> list[str]:
    """The machine: `accelerator` is the words that say what it runs on, `memory` in MiB.

    `network` gives it a card, whose network ends at this machine; `service` is a port of this machine that
    SERVICE leads to. With `reboots` the guest's own reboot is
    one; else it ends QEMU, which is how a panic is seen at once.

    The console is in folder/console, the second serial port and the control socket in folder/{serial,qmp}.
    """
    machine = [
        PROGRAM,
        *accelerator,
        "-M",
        "q35",
        "-m",
        str(memory),
        "-smp",
        str(cpus),
    ]
    plain = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        *([] if reboots else ["-no-reboot"]),
        "-serial",
        f"file:{folder}/console",
    ]
    channel = [
        "-chardev",
        f"socket,id=agent,path={folder}/serial,server=on,wait=off",
        "-serial",
        "chardev:agent",
    ]
    control = ["-qmp", f"unix:{folder}/qmp,server=on,wait=off"]
    forward = f",guestfwd=tcp:{SERVICE}:443-cmd:busybox nc 127.0.0.1 {service}" if service else ""
    card = ["-nic", f"user,id={_CARD},model=virtio-net-pci{forward}"] if network else []
    disks = [word for drive in drives for word in drive.options()]
    return [*machine, *plain, *channel, *control, *card, *disks]


class Control:
    """QEMU's control socket (QEMU Machine Protocol)."""

    def __init__(self, path: Path, child: subprocess.Popen[bytes], log: Path) -> None:
        self._socket = dial(path, child, log)
        self._stream = self._socket.makefile("rw")
        self._stream.readline()
        self.ask("qmp_capabilities")

    def close(self) -> None:
        """Drop the connection; the machine goes on."""
        self._socket.close()
        with contextlib.suppress(OSError):  # unsent words for a QEMU that is gone
            self._stream.close()

    def ask(self, command: str, **arguments: object) -> Any:
        """One command; returns its answer. Raises CommandFailed with QEMU's own words."""
        self._stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._stream.flush()
        while True:
            answer = json.loads(
                self._stream.readline() or '{"error": {"desc": "QEMU closed the connection"}}'
            )
            if "error" in answer:
                raise CommandFailed(f"QEMU refuses {command}", details=[answer["error"]["desc"]])
            if "return" in answer:
                return answer["return"]


def dial(path: Path, child: subprocess.Popen[bytes], log: Path) -> socket.socket:
    """Connect to one of QEMU's sockets as soon as it listens."""
    channel = socket.socket(socket.AF_UNIX)

    def connected() -> bool:
        try:
            channel.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    try:
        until(connected, "QEMU's socket", timeout=20, child=child, log=log)
    except BaseException:
        channel.close()
        raise
    return channel


def launch(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start QEMU; what it says goes to folder/qemu.log."""
    return start(words, log=folder / "qemu.log")


def set_link(control: Control, *, up: bool) -> None:
    """Put the cable of the machine's card in, or pull it."""
    control.ask("set_link", name=_CARD, up=up)


def save(control: Control, child: subprocess.Popen[bytes], target: Path) -> None:
    """Stop the machine, write its state to a file, end QEMU."""
    control.ask("stop")
    control.ask("migrate", uri=f"exec:cat > {target}")

    def written() -> bool:
        state = control.ask("query-migrate")
        if state.get("status") == "failed":
            raise CommandFailed("QEMU could not save the guest", details=[json.dumps(state)])
        return bool(state.get("status") == "completed")

    until(written, "saving the guest", timeout=300)
    control.ask("quit")
    child.wait(timeout=30)


def resume(control: Control) -> None:
    """Wait until the state was read, then let the machine run."""
    until(
        lambda: control.ask("query-status")["status"] not in ("inmigrate", "prelaunch"),
        "reading the saved guest",
        timeout=120,
    )
    if control.ask("query-status")["status"] == "guest-panicked":
        raise TemporaryFailure("the saved guest had panicked")
    control.ask("cont")
