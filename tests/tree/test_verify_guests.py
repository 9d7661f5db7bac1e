"""What boots guests, with programs that stand in for QEMU; tests/vm/test_verify.py has the real one."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_build.engine import process
from driverforge_build.engine.accelerator import Accelerator
from driverforge_build.engine.guests import QemuGuests, arguments
from driverforge_build.ports import GuestBoot, GuestEnd
from driverforge_core.errors import CommandFailed, Unavailable
from support.fakes.mockpath import MockPath
from support.process import running, until

STATIC = {
    arch: b"\x7fELF\x02\x01".ljust(18, b"\0") + machine.to_bytes(2, "little") + bytes(44)
    for arch, machine in {"amd64": 62, "arm64": 183}.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A PATH with a mock QEMU, and a file that says whether there is a /dev/kvm."""

    mock: MockPath
    folder: Path

    def guests(self, *, kvm: bool = False) -> QemuGuests:
        device = self.folder / "kvm"
        if kvm:
            device.touch()
        shells = {arch: self.folder / f"busybox-{arch}" for arch in STATIC}
        for arch, path in shells.items():
            path.write_bytes(STATIC[arch])
        return QemuGuests(shells, device=device)

    def boot(self, *, silence: float = 20) -> GuestBoot:
        return GuestBoot(
            arch="amd64" if os.uname().machine == "x86_64" else "arm64",
            kernel=self.folder / "vmlinuz",
            first_root=self.folder / "root",
            append="module.sig_enforce=1",
            memory=800,
            console=self.folder / "console",
            silence=silence,
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    mock = MockPath(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{mock.folder}:{os.environ['PATH']}")
    return Bench(mock=mock, folder=tmp_path)


def qemu(bench: Bench, script: str) -> None:
    version = 'if [ "$1" = --version ]; then echo "QEMU emulator version 9.9.9"; exit; fi\n'
    for machine in ("x86_64", "aarch64"):
        bench.mock.add(f"qemu-system-{machine}", version + script)


def test_lines_are_told_when_they_are_whole(bench: Bench) -> None:
    qemu(bench, "printf 'release 6.1\\nbegin a\\nend a 0 \\ncut off'")
    heard: list[str] = []
    ran = bench.guests().run(bench.boot(), heard.append)
    assert heard == ["release 6.1", "begin a", "end a 0 "]
    assert ran.end is GuestEnd.OFF
    assert ran.machine.startswith("QEMU 9.9.9, TCG, software emulation (")


def test_a_silent_guest_is_stopped_and_nothing_of_it_is_left(bench: Bench) -> None:
    qemu(bench, f"echo release 6.1; echo $$ >{bench.folder}/pid; exec sleep 1000")
    heard: list[str] = []
    ran = bench.guests().run(bench.boot(silence=1), heard.append)
    assert (ran.end, heard) == (GuestEnd.SILENT, ["release 6.1"])
    with pytest.raises(ProcessLookupError):
        os.kill(int((bench.folder / "pid").read_text()), 0)


def test_a_qemu_that_fails_is_told_with_its_words(bench: Bench) -> None:
    qemu(bench, "echo 'no such machine' >&2; exit 1")
    with pytest.raises(CommandFailed, match="QEMU exited with 1") as caught:
        bench.guests().run(bench.boot(), lambda _: None)
    assert caught.value.details[-1] == "no such machine"


def test_kvm_that_does_not_boot_the_guest_is_given_up_for_the_run(bench: Bench) -> None:
    qemu(bench, 'case "$*" in *"-accel kvm"*) echo broken >&2; exit 3 ;; esac; echo release 6.1')
    guests, heard = bench.guests(kvm=True), list[str]()
    first = guests.run(bench.boot(), heard.append)
    second = guests.run(bench.boot(), heard.append)
    assert heard == ["release 6.1", "release 6.1"]
    assert first.machine == second.machine
    assert "QEMU ended with 3 and said 'broken'" in first.machine
    [calls] = [calls for name in ("x86_64", "aarch64") if (calls := bench.mock.calls(f"qemu-system-{name}"))]
    assert sum("-accel kvm" in call for call in calls) == 1


def test_kvm_that_boots_it_is_used_and_its_guest_is_no_second_one(bench: Bench) -> None:
    qemu(bench, "echo release 6.1")
    guests, heard = bench.guests(kvm=True), list[str]()
    assert guests.run(bench.boot(), heard.append).machine == "QEMU 9.9.9, KVM (a guest booted with it)"
    assert heard == ["release 6.1"]


def test_what_is_missing_is_named_with_what_to_install(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    qemu(bench, "true")
    native, foreign = ("amd64", "arm64") if os.uname().machine == "x86_64" else ("arm64", "amd64")
    (bench.folder / "dynamic").write_bytes(Path("/bin/ls").read_bytes())
    (bench.folder / "foreign").write_bytes(STATIC[foreign])
    for name in ("dynamic", "foreign"):
        with pytest.raises(Unavailable, match=f"/{name} is no static program for it") as caught:
            QemuGuests({native: bench.folder / name}).busybox(native)
        assert caught.value.exit_code == 69
    with pytest.raises(Unavailable) as caught:
        QemuGuests().busybox(foreign)
    assert f"apt-get download busybox-static:{foreign}" in caught.value.resolution
    assert bench.guests().busybox(foreign) == STATIC[foreign]
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match="not installed: qemu-system-x86_64, setpriv, prlimit") as caught:
        bench.guests().busybox("amd64")
    assert "apt-get install qemu-system-x86 util-linux" in caught.value.resolution


def test_each_architecture_has_its_machine_and_its_ports(bench: Bench) -> None:
    tcg = Accelerator(kind="tcg", why="")
    words = {arch: " ".join(arguments(replace(bench.boot(), arch=arch), tcg)) for arch in ("amd64", "arm64")}
    assert "qemu-system-x86_64 -accel tcg,thread=multi -cpu max,-cx16 -M q35 -m 800" in words["amd64"]
    assert "-serial chardev:results" in words["amd64"]
    assert (
        "console=ttyS0 panic=-1 oops=panic driverforge.results=ttyS1 module.sig_enforce=1" in words["amd64"]
    )
    assert "qemu-system-aarch64 -accel tcg,thread=multi -cpu max -M virt" in words["arm64"]
    assert "-device pci-serial,chardev=results" in words["arm64"]
    assert "console=ttyAMA0" in words["arm64"]
    assert all("-no-reboot" in line and "-nodefaults" in line for line in words.values())


def test_a_followed_program_ends_with_who_follows_it(tmp_path: Path) -> None:
    """Killed, not asked: nothing of ours is left that could tell it."""
    pid_file = tmp_path / "pid"
    child = os.fork()
    if child == 0:
        script = f"echo $$ >{pid_file}; exec sleep 1000"
        process.follow(
            ["sh", "-c", script], errors=tmp_path / "errors", silence=lambda: 1000, on_line=lambda _: None
        )
        os._exit(0)
    try:
        until(lambda: pid_file.exists() and bool(pid_file.read_text()), "a followed program")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    followed = int(pid_file.read_text())
    until(lambda: not running(followed), "its end")
