"""What the node reads of the kernel, of kmod and of cgroups, in the words that real systems print."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    NotPermitted,
    StorageFailed,
    TemporaryFailure,
    Unavailable,
    Unsupported,
)
from driverforge_driver.driver.steps.diagnose import explain_insert
from driverforge_driver.state.loadtree import closure, parse_dep
from driverforge_driver.state.observe import related_modules
from driverforge_host.adapters.modules import in_use, kmsg_sequence, kmsg_text, parse_proc_modules
from driverforge_host.adapters.processes import MappedFile, mapped_files, parse_cgroup
from driverforge_host.gpu.detect import loaded_type
from driverforge_host.gpu.device_files import device_majors
from driverforge_host.ports import Holder, describe_holder
from driverforge_host.ports.mounts import parse_mountinfo, unescape

ID = "3f" * 32
POD = "6f0f3a5e-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
UNDERSCORES = POD.replace("-", "_")


@pytest.mark.parametrize(
    ("text", "container", "pod"),
    [
        (
            (
                f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORES}.slice/"
                f"cri-containerd-{ID}.scope"
            ),
            ID,
            POD,
        ),
        (f"0::/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/crio-{ID}.scope/container", ID, POD),
        (f"0::/kubepods/besteffort/pod{POD}/{ID}", ID, POD),
        (f"12:devices:/kubepods/pod{POD}/{ID}\n11:memory:/kubepods/pod{POD}/{ID}\n0::/\n", ID, POD),
        (f"0::/system.slice/docker-{ID}.scope", ID, ""),
        (f"3:cpu:/docker/{ID}\n", ID, ""),
        (f"0::/machine.slice/libpod-{ID}.scope/container", ID, ""),
        (
            (
                f"0::/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORES}.slice:"
                f"cri-containerd:{ID}"
            ),
            ID,
            POD,
        ),
        ("0::/kubepods/pod" + "ab" * 16 + f"/{ID}", ID, "ab" * 16),  # a static pod's uid is a hash
        ("0::/system.slice/ssh.service\n", "", ""),
        ("0::/\n", "", ""),
        ("", "", ""),
    ],
)
def test_cgroup_names_container_and_pod(text: str, container: str, pod: str) -> None:
    assert parse_cgroup(text) == (container, pod)


def test_the_innermost_of_nested_containers_is_named() -> None:
    inner = "ab" * 32
    assert parse_cgroup(f"0::/kubepods/pod{POD}/{ID}/docker/{inner}") == (inner, POD)


@pytest.mark.parametrize("character", "\r\x0b\x0c\x1c\x85\u2028")
def test_a_mount_that_a_pod_gave_a_strange_name_is_one_line(character: str) -> None:
    """The folder of a volume's subPath; the kernel escapes space, tab, newline and backslash (proc(5))."""
    (mount,) = parse_mountinfo(f"36 35 8:1 /v/a{character}b /c rw - ext4 /dev/sda1 rw\n")
    assert (mount.root, mount.target) == (f"/v/a{character}b", "/c")


def test_mountinfo() -> None:
    text = (
        "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
        "45 36 0:22 /nvidia /run/nvidia rw,relatime shared:3 - tmpfs run rw,mode=755\n"
        "46 36 0:22 / /a\\040b rw shared:4 master:2 - overlay over\\134lay rw\n"
        "47 36 0:21 / /sys rw unbindable - sysfs sys rw\n"
        "48 36 0:20 / /proc rw - proc proc rw\n"
    )
    found = parse_mountinfo(text)
    assert [(m.target, m.propagation, m.source) for m in found] == [
        ("/mnt2", "slave", "/dev/root"),
        ("/run/nvidia", "shared", "run"),
        ("/a b", "shared,slave", "over\\lay"),
        ("/sys", "unbindable", "sys"),
        ("/proc", "private", "proc"),
    ]
    assert (found[0].mount_id, found[0].parent_id, found[0].root, found[0].fs_type) == (
        36,
        35,
        "/mnt1",
        "ext3",
    )


@given(st.text(st.characters(codec="ascii", exclude_characters="\x00")))
def test_unescape_reverses_what_the_kernel_escapes(text: str) -> None:
    escaped = "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in text)
    assert unescape(escaped) == text


PROC_MODULES = """nvidia_modeset 1146880 0 - Live 0x0000000000000000 (OE)
nvidia_uvm 4816896 1 - Live 0x0000000000000000 (OE)
nvidia 40894464 5 nvidia_modeset,nvidia_uvm, Live 0x0000000000000000 (OE)
gone 16384 0 [permanent], Unloading 0x0 (F)
builtinish 100 - - Live 0x0
"""


def test_proc_modules() -> None:
    found = parse_proc_modules(PROC_MODULES, {"nvidia": "535.261.03"}.get)  # type: ignore[arg-type]
    assert found["nvidia"].holders == ("nvidia_modeset", "nvidia_uvm")
    assert (found["nvidia"].refcount, found["nvidia"].version) == (5, "535.261.03")
    assert (found["gone"].state, found["gone"].holders) == ("Unloading", ())
    assert found["builtinish"].refcount == -1
    assert set(related_modules(found)) == {"nvidia", "nvidia_modeset", "nvidia_uvm"}


def test_a_module_on_top_of_a_module_on_top_is_related() -> None:
    text = (
        "nvidia 1 1 nvidia_fs, Live 0\nnvidia_fs 1 1 other, Live 0\nother 1 0 - Live 0\nloop 1 0 - Live 0\n"
    )
    assert set(related_modules(parse_proc_modules(text, lambda _: ""))) == {"nvidia", "nvidia_fs", "other"}


@pytest.mark.parametrize(
    ("text", "majors"),
    [
        (
            (
                "Character devices:\n  1 mem\n195 nvidia-frontend\n511 nvidia-uvm\n\nBlock devices:\n"
                "254 nvidiablk\n"
            ),
            {"nvidia-frontend": 195, "nvidia-uvm": 511},
        ),
        (
            "Character devices:\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n236 nvidia-caps\n",
            {"nvidia": 195, "nvidia-modeset": 195, "nvidiactl": 195, "nvidia-caps": 236},
        ),
        ("", {}),
    ],
)
def test_device_majors_of_535_and_550(text: str, majors: dict[str, int]) -> None:
    assert device_majors(text) == majors


def test_module_type_of_the_loaded_driver() -> None:
    assert (
        loaded_type(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.261.03  Release Build\n"
            "GCC version: gcc 12\n"
        )
        == "open"
    )
    assert (
        loaded_type("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Fri Jun\n") == "proprietary"
    )
    assert loaded_type("") == ""


def test_in_tree_closure() -> None:
    dep = parse_dep(
        "kernel/a/ipmi_msghandler.ko: \nkernel/a/ipmi_devintf.ko.xz: kernel/a/ipmi_msghandler.ko\n"
        "kernel/b/drm.ko.zst:\nkernel/b/drm_kms_helper.ko: kernel/b/drm.ko.zst\n"
    )
    assert closure(dep, ["ipmi-devintf", "drm", "builtin"]) == [
        "kernel/a/ipmi_devintf.ko.xz",
        "kernel/a/ipmi_msghandler.ko",
        "kernel/b/drm.ko.zst",
    ]


def test_kmsg_records() -> None:
    record = "6,339,5140900,-;NVRM: loading NVIDIA UNIX x86_64\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n"
    assert kmsg_text(record) == "NVRM: loading NVIDIA UNIX x86_64"
    assert kmsg_sequence(record) == 339


def test_mapped_files() -> None:
    maps = (
        "00400000-00401000 rw-s 00000000 00:05 395        /dev/nvidia-uvm\n7f00-7f01 r-xp 0 00:00 0\n"
        "7ffc-7ffd rw-p 0 00:00 0 [stack]\n"
    )
    # as the kernel names it in map_files
    assert mapped_files(maps) == [
        MappedFile(area="400000-401000", identity=("00:05", "395"), path="/dev/nvidia-uvm")
    ]


def test_a_mapped_file_whose_name_looks_like_a_line_of_its_own_is_one_file() -> None:
    path = "/tmp/x\x0c7f00-no r 0 0 0 /dev/nvidia0"
    (mapped,) = mapped_files(f"7f00-7f01 r--p 00000000 08:01 12   {path}\n")
    assert mapped.path == path


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("python3", "python3"),
        ("Größe", "Größe"),
        ("x\nerror: forged", "x\\nerror: forged"),
        ("\x1b[2Jx\r", "\\x1b[2Jx\\r"),
        # turns the rest of the line round
        ("x\u202ey", "x\\u202ey"),
        # a byte that is no text
        ("x\udcff", "x\\udcff"),
    ],
)
def test_the_name_of_a_process_stays_on_its_line(name: str, shown: str) -> None:
    holder = Holder(pid=812, command=name, path="/dev/nvidia0", container="", pod="")
    assert describe_holder(holder) == f"process 812 ({shown}, on the host) holds /dev/nvidia0"
    elsewhere = replace(holder, command="python3", path=f"/dev/{name}")
    assert describe_holder(elsewhere) == f"process 812 (python3, on the host) holds /dev/{shown}"


@pytest.mark.parametrize(
    ("message", "used"),
    [
        ("rmmod: ERROR: Module nvidia is in use by: nvidia_uvm nvidia_modeset", True),
        ("rmmod: ERROR: Module nvidia_uvm is in use", True),
        ("rmmod: ERROR: could not remove 'nvidia': Resource temporarily unavailable", True),
        ("rmmod: ERROR: could not remove 'nvidia': Operation not permitted", False),
    ],
)
def test_rmmods_words(message: str, used: bool) -> None:
    assert in_use(message) == used


# modprobe's line, then the kernel's, as collected on 6.1 and 6.12 guests
@pytest.mark.parametrize(
    ("lines", "error", "says"),
    [
        (
            [
                "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
                "kernel: Loading of unsigned module is rejected",
            ],
            NotPermitted,
            "signature",
        ),
        (
            [
                "modprobe: ERROR: could not insert 'nvidia': Operation not permitted",
                (
                    "kernel: Lockdown: modprobe: unsigned module loading is restricted; see man "
                    "kernel_lockdown.7"
                ),
            ],
            NotPermitted,
            "signature",
        ),
        (
            [
                "modprobe: ERROR: could not insert 'nvidia': Exec format error",
                "kernel: nvidia: disagrees about version of symbol module_layout",
            ],
            Unsupported,
            "another kernel",
        ),
        (
            ["insmod: ERROR: could not insert module nvidia.ko: Invalid module format"],
            Unsupported,
            "another kernel",
        ),
        (
            [
                "modprobe: ERROR: could not insert 'nvidia': No such device",
                "kernel: NVRM: No NVIDIA GPU found.",
            ],
            Unavailable,
            "no NVIDIA GPU",
        ),
        (
            [
                "modprobe: ERROR: could not insert 'nvidia': No such device",
                "kernel: NVRM: The NVIDIA probe routine was not called for 1 device(s).",
            ],
            Unsupported,
            "another driver",
        ),
        (
            [
                (
                    "modprobe: ERROR: could not insert 'nvidia_drm': Unknown symbol in module, or "
                    "unknown parameter (see dmesg)"
                )
            ],
            Unsupported,
            "symbols",
        ),
        (
            [
                "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument",
                (
                    "kernel: nvidia-peermem nv_mem_client_init:556: ERROR module compiled without IB "
                    "peer memory symbols present"
                ),
            ],
            Unsupported,
            "without the peer memory functions",
        ),
        (["modprobe: ERROR: could not insert 'nvidia': No space left on device"], StorageFailed, "no space"),
        (
            ["modprobe: ERROR: could not insert 'nvidia': Cannot allocate memory"],
            TemporaryFailure,
            "out of memory",
        ),
        (
            ["modprobe: ERROR: could not insert 'nvidia': Operation not permitted"],
            NotPermitted,
            "not permitted",
        ),
    ],
)
def test_what_the_kernel_says_becomes_a_next_step(
    lines: list[str], error: type[DriverforgeError], says: str
) -> None:
    found = explain_insert(
        CommandFailed("could not insert the module nvidia", details=lines), release="6.1.0-50-cloud-amd64"
    )
    assert type(found) is error
    assert says in found.brief
    assert found.details == tuple(lines)
    assert found.resolution


def test_an_unknown_failure_stays_what_it_is() -> None:
    failure = CommandFailed(
        "could not insert the module nvidia",
        details=["modprobe: ERROR: could not insert 'nvidia': Invalid argument"],
    )
    assert explain_insert(failure, release="6.1") is failure
