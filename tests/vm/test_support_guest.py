"""The bench's guests: real kernels that run what they are told, afresh and resumed.

They say so when they die.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable
from support.machines import kernels, kmods, rootfs
from support.machines.guest import LATE_SIZE, Disk, Guest, Machine, once
from support.machines.kernels import Image, Kernel


@pytest.mark.parametrize("saved", [False, True], ids=["fresh", "resumed"])
def test_scripts_run_with_output_and_status(machine: Machine, image: Image, saved: bool) -> None:
    with Guest.start(machine, saved=saved) as guest:
        first = guest.run("echo one; uname -r; echo two >&2; exit 3")
        assert (first.rc, first.output) == (3, f"one\n{image.release}\ntwo\n")
        assert guest.run("echo $0 | wc -w; [ -e /run/script ]").ok() == "1\n"
        with pytest.raises(CommandFailed) as failure:
            guest.run("echo evidence; false").ok()
        assert failure.value.brief == "the guest's script exited with 1"
        assert failure.value.details[0] == "evidence\n"


def test_each_resumed_guest_starts_from_the_same_state(machine: Machine) -> None:
    with Guest.start(machine) as first:
        first.run("touch /tmp/trace; modprobe -n virtio_blk").ok()
    with Guest.start(machine) as second:
        assert second.run("ls /tmp").ok() == ""


def test_the_clock_is_right_after_a_resume(machine: Machine) -> None:
    with Guest.start(machine) as guest:
        year = int(guest.run("date +%Y").ok())
    assert year >= 2026


def test_files_arrive_more_than_once_and_keep_their_modes(machine: Machine, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho from a file\n")
    program.chmod(0o755)
    (tmp_path / "folder/sub").mkdir(parents=True)
    (tmp_path / "folder/sub/data").write_bytes(bytes(range(256)) * 20000)
    with Guest.start(machine) as guest:
        guest.put({"/opt/program": program, "/opt/folder": tmp_path / "folder", "/opt/text": "first\n"})
        assert (
            guest.run("/opt/program; cat /opt/text; wc -c </opt/folder/sub/data").ok()
            == "from a file\nfirst\n5120000\n"
        )
        guest.put({"/opt/text": "second\n"})
        assert guest.run("cat /opt/text; tail -c 3 /opt/folder/sub/data | od -An -tu1").ok().split() == [
            "second",
            "253",
            "254",
            "255",
        ]


def test_output_comes_while_the_script_runs(machine: Machine) -> None:
    seen: list[str] = []
    with Guest.start(machine) as guest:
        result = guest.run("echo early; sleep 0.5; echo late; printf unfinished", on_output=seen.append)
    assert seen == ["early", "late", "unfinished"]
    assert result.output == "early\nlate\nunfinished"


def test_a_background_process_does_not_hold_the_channel(machine: Machine) -> None:
    with Guest.start(machine) as guest:
        guest.run("sleep 1000 &").ok()
        assert guest.run("pidof sleep | wc -w").ok() == "1\n"


def test_a_script_that_hangs_is_given_up_with_what_it_said(machine: Machine) -> None:
    with Guest.start(machine) as guest, pytest.raises(TemporaryFailure) as failure:
        guest.run("echo before; sleep 1000", timeout=2)
    assert "did not answer within 2 s" in failure.value.brief
    assert "before" in failure.value.details[0]


def test_a_panic_is_told_with_the_kernels_words(machine: Machine) -> None:
    with Guest.start(machine, saved=False) as guest:
        with pytest.raises(CommandFailed) as failure:
            guest.run("echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger", timeout=60)
        assert not guest.alive
    assert failure.value.brief == "the guest died"
    assert "Kernel panic - not syncing: sysrq triggered crash" in "\n".join(failure.value.details)


def test_a_script_too_long_for_the_line_is_refused(machine: Machine) -> None:
    with Guest.start(machine) as guest:
        with pytest.raises(ValueError, match="use put"):
            guest.run(":" * 40000)
        assert guest.run(f": {'x' * 20000}; echo fine").ok() == "fine\n"


def test_an_unknown_module_is_named(machine: Machine) -> None:
    with pytest.raises(Unavailable, match="has no module no_such_thing"):
        Guest.start(replace(machine, modules=("no-such-thing",)))


def test_debian_root_without_services_has_python_and_the_kernels_modules(image: Image) -> None:
    script = """
        python3 -c 'import ssl, ctypes; print("python")'
        cat /proc/1/comm
        modprobe overlay && grep -c ^overlay /proc/modules
        command -v runc
    """
    assert once(rootfs.agent_machine(image), script).ok().split() == ["python", "init", "1", "/usr/sbin/runc"]


def test_systemd_runs_containerd_and_a_late_disk_is_mounted(image: Image, tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "hello").write_text("from the late disk")

    disk = tmp_path / "late.img"
    rootfs.empty_disk(disk, fill)
    machine = rootfs.systemd_machine(image, store=disk)
    with Guest.start(machine) as guest:
        assert guest.run(
            "systemctl is-system-running; systemctl is-active containerd; "
            "ctr plugins ls | grep -cw 'cri .*ok'"
        ).ok().split() == [
            "running",
            "active",
            "1",
        ]
        guest.mount("store", "/mnt")
        assert guest.run("cat /mnt/hello").ok() == "from the late disk"
        with pytest.raises(CommandFailed, match="could not do 'mount nothing /mnt'"):
            guest.mount("nothing", "/mnt")


def test_late_disks_have_the_size_that_a_saved_guest_saw(image: Image, tmp_path: Path) -> None:
    rootfs.empty_disk(tmp_path / "late.img", lambda folder: None)
    assert (tmp_path / "late.img").stat().st_size == LATE_SIZE
    assert (tmp_path / "late.img").stat().st_blocks * 512 < LATE_SIZE // 10
    assert Disk(name="store", late=True).file is None


def test_kernels_are_chosen_by_what_their_headers_say(kernel: Kernel, kernel_612: Kernel) -> None:
    assert (kernel.resize_arguments, kernel_612.resize_arguments) == (3, 3)
    assert kernel.release.startswith("6.1.")
    assert kernel_612.release.startswith("6.12.")
    newest = kernels.candidates("6.1")[0]
    assert newest.name >= f"linux-headers-{kernel.release}"
    with pytest.raises(Unavailable) as refusal:
        kernels.newest("6.1", resize_arguments=7)
    assert any(kernel.release in line and "3 arguments" in line for line in refusal.value.details)


def test_the_gpu_that_is_not_there(machine: Machine, kernel: Kernel) -> None:
    files = {"/gpu": kmods.fakegpu(kernel)}
    script = f"""
        insmod /gpu/fakegpu.ko {kmods.GPU_PARAMETERS} functions=20b0:030200:170000a1,2330:030200 || exit
        for d in /sys/bus/pci/devices/0001:*; do echo $(cat $d/vendor $d/device $d/class); done
        rmmod fakegpu && ls -d /sys/bus/pci/devices/0001:* 2>/dev/null
        insmod /gpu/fakegpu.ko {kmods.GPU_PARAMETERS} functions=nonsense; echo $?
    """
    result = once(machine, script, files=files)
    assert result.output.splitlines()[:2] == ["0x10de 0x20b0 0x030200", "0x10de 0x2330 0x030200"]
    assert result.output.splitlines()[-1] == "1"
    assert "'nonsense' is not DEVICE:CLASS[:BOOT0]" in result.console


def test_mock_modules_behave_as_the_real_ones_where_it_counts(machine: Machine, kernel: Kernel) -> None:
    script = """
        cd /m
        insmod nvidia.ko fail=19; echo $?
        insmod nvidia.ko NVreg_RegistryDwords=RMTest=1; insmod nvidia-uvm.ko; \
insmod nvidia-peermem.ko; insmod nvidia-modeset.ko
        cat /sys/module/nvidia/version /sys/module/nvidia/refcnt \
/sys/module/nvidia/parameters/NVreg_RegistryDwords
        grep -o '535[0-9.]*' /proc/driver/nvidia/version
        grep -c nvidia /proc/devices
        rmmod nvidia
        rmmod nvidia-modeset nvidia-peermem
        mknod /dev/nvidiactl c 195 255; \
mknod /dev/nvidia-uvm c $(awk '/nvidia-uvm/{print $1}' /proc/devices) 0
        exec 5</dev/nvidiactl 6</dev/nvidia-uvm
        cat /sys/module/nvidia/refcnt /sys/module/nvidia_uvm/refcnt
        rmmod nvidia-uvm
        exec 5<&- 6<&-
        rmmod nvidia-uvm nvidia; echo $?
    """
    result = once(machine, script, files={"/m": kmods.mock(kernel)})
    assert result.ok().splitlines() == [
        "insmod: ERROR: could not insert module nvidia.ko: No such device",
        "1",
        *("535.261.03", "3", "RMTest=1", "535.261.03", "2"),
        "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm nvidia_peermem nvidia_modeset",
        *("3", "2"),  # an open device holds two references: its cdev's and its operations'
        "rmmod: ERROR: Module nvidia_uvm is in use",
        "0",
    ]


def test_a_signature_satisfies_a_kernel_that_enforces_them_only_with_a_key_it_knows(
    machine: Machine, kernel: Kernel, tmp_path: Path
) -> None:
    """Without the key in the kernel's keyring a signed module is refused for its key.

    An unsigned one is refused for having none.
    """
    modules = kmods.mock(kernel)
    signed = tmp_path / "nvidia.ko"
    signed.write_bytes((modules / "nvidia.ko").read_bytes())
    kmods.sign(signed, kernel, kmods.signing_key(tmp_path))
    assert signed.read_bytes().endswith(b"~Module signature appended~\n")
    enforcing = replace(machine, append=f"{machine.append} module.sig_enforce=1")
    script = "insmod /unsigned.ko; insmod /signed.ko; dmesg | grep -o 'Loading of .* is rejected'"
    result = once(enforcing, script, files={"/unsigned.ko": modules / "nvidia.ko", "/signed.ko": signed})
    assert result.output.count("Key was rejected by service") == 2
    assert "Loading of unsigned module is rejected" in result.output
    assert "Loading of module with unavailable key is rejected" in result.output
