"""`driverctl` in a driver container's place on a real kernel.

Modules are test doubles; mounts, signals and refusals are the kernel's own.
D1 and the like are defects of NVIDIA's container, by their names in docs/compatibility.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from support.machines import drivernode, kmods, rootfs
from support.machines.guest import Content, Guest
from support.machines.kernels import Image, Kernel
from support.skipping import provided

CONTAINER_ID = "c1" * 32
POD = "6f0f3a5e-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
SLICE = (
    f"kubepods.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER_ID}.scope"
)

HELPERS = f"""
export LC_ALL=C
status=/run/nvidia/validations/.driver-daemons-status
start() {{
    rm -f /tmp/ended
    (sh -c 'echo $$ >/tmp/pid; exec driverctl init' >/tmp/log 2>&1; echo $? >/tmp/ended) &
}}
ready() {{ grep -qsx Ready $status && grep -qs '"phase": "ready"' /run/nvidia/driverforge/status.json; }}
until_ready() {{ until ready; do [ -s /tmp/ended ] && {{ cat /tmp/log; return 1; }}; sleep 0.2; done; }}
stop() {{
    kill -TERM $(cat /tmp/pid)
    until [ -s /tmp/ended ]; do sleep 0.2; done
    echo "init ended with $(cat /tmp/ended)"
}}
nvidia_modules() {{ lsmod | awk '/^nvidia/ {{ print $1 }}' | sort | tr '\\n' ' '; }}
mounted() {{ grep -c $1 /proc/self/mountinfo; }}
left() {{
    echo "modules: $(nvidia_modules)"
    echo "files: $(find /run/nvidia -xdev -type f | sort | tr '\\n' ' ')"
    echo "mounts: $(mounted /run/nvidia/driver) $(mounted driverforge/stage)"
    echo "firmware path: $(tr -d '\\0\\n' </sys/module/firmware_class/parameters/path)"
}}
hold() {{
    group=/sys/fs/cgroup/{SLICE}
    mkdir -p $group
    (echo $BASHPID >$group/cgroup.procs; exec sleep 100000 <{drivernode.CONTAINER}/dev/nvidia-uvm) &
    holder=$!
    until [ -e /proc/$holder/fd/0 ] && readlink /proc/$holder/fd/0 | grep -q nvidia; do sleep 0.2; done
}}
"""
# each load of a module gives its folder another inode
LOADED = "stat -c %i /sys/module/nvidia"
NOTHING = "modules: \nfiles: \nmounts: 0 0\nfirmware path: \n"
# what the kernel adds here to the tests of the tree tier is little, and each start of Python takes seconds
AS_ON_A_FAKE = pytest.mark.full(reason="the tree tier has it, on a fake host")

Start = Callable[..., AbstractContextManager[Guest]]


@pytest.fixture
def node(kernel: Kernel, image: Image) -> Start:
    """Starts a node with a driver container of a precompiled image.

    `files` are put over the container's, `gpu` is on its bus.
    """
    machine = provided(lambda: rootfs.agent_machine(image, append=kmods.GPU_MEMORY, memory=1280))

    @contextmanager
    def start(files: Mapping[str, Content] | None = None, *, gpu: bool = True) -> Iterator[Guest]:
        with Guest.start(machine) as guest:
            container = drivernode.container_files(kmods.mock(kernel), kernel.release)
            drivernode.prepare(guest, {**container, **(files or {})}, kmods.fakegpu(kernel), gpu=gpu)
            yield guest

    return start


def run(guest: Guest, script: str, *, timeout: float = 300) -> str:
    return guest.run(f"{HELPERS}\n{script}", timeout=timeout).ok()


def refused(guest: Guest, script: str = "driverctl init") -> tuple[int, str, str]:
    """Exit status and message of a start that must not succeed, and what it left on the node."""
    result = guest.run(f"{HELPERS}\n({script}) >/tmp/log 2>&1; echo $? >/tmp/rc; cat /tmp/log", timeout=120)
    status = int(run(guest, "cat /tmp/rc"))
    return status, result.output, run(guest, "left")


def test_a_driver_loads_stays_while_used_is_kept_and_goes_without_a_trace(
    node: Start, kernel: Kernel
) -> None:
    with node() as guest:
        run(guest, "start; until_ready")
        assert "step" in run(guest, "cat /tmp/log")
        shown = json.loads(run(guest, "cat /run/nvidia/driverforge/status.json"))
        assert (shown["phase"], shown["driver"], shown["module_type"], shown["root"]) == (
            "ready",
            kmods.MOCK_VERSION,
            "open",
            "ours",
        )
        assert (
            shown["module_source"] == f"the image has open modules {kmods.MOCK_VERSION} for {kernel.release}"
        )
        assert run(guest, "driverctl probe; echo $?") == "0\n"
        assert (
            run(guest, "ls /run/nvidia/driver/proc/1/comm /run/nvidia/driver/dev/nvidiactl | wc -l") == "2\n"
        )
        # D9: NVIDIA's sidecar loads peermem out of the driver's root
        assert (
            run(guest, "chroot /run/nvidia/driver modprobe nvidia-peermem && rmmod nvidia_peermem; echo $?")
            == "0\n"
        )

        # in use: a process of a pod holds the device
        out = run(
            guest,
            "hold; stop; echo holder $holder; cat /tmp/log; left; echo status: $(cat $status)",
            timeout=120,
        )
        assert "init ended with 0" in out
        assert "the driver stays loaded: it is in use" in out
        holder = next(line.split()[1] for line in out.splitlines() if line.startswith("holder "))
        assert f"process {holder} (sleep, container {CONTAINER_ID[:12]}, pod {POD}) holds " in out
        assert "modules: nvidia nvidia_modeset nvidia_uvm \n" in out
        assert "mounts: 0 0\n" in out
        assert "status: NotReady\n" in out

        # again: nothing is reloaded
        before = run(guest, LOADED)
        out = run(guest, "start; until_ready; cat /tmp/log")
        assert "nothing is reloaded" in out
        assert "load the module" not in out
        assert run(guest, LOADED) == before
        status, message, _ = refused(guest, "driverctl unload")
        assert status == 75
        assert (
            f"error: the NVIDIA driver {kmods.MOCK_VERSION} is in use\n  | process {holder} (sleep, container"
            in message
        )

        # idle: nothing is left
        assert run(guest, "kill $(pgrep -x sleep); stop; left").endswith(f"init ended with 0\n{NOTHING}")
        # and the container still has its own /proc, /sys and /dev
        assert (
            run(
                guest,
                f"cd {drivernode.CONTAINER} && ls -d proc/1 sys/module dev/null | wc -l",
            )
            == "3\n"
        )


@AS_ON_A_FAKE
def test_a_driver_with_one_module_is_no_driver(node: Start, kernel: Kernel) -> None:
    """The rest of it is gone, and so are the modules that the image had: it was Ready once."""
    with node() as guest:
        sets = f"{drivernode.CONTAINER}/opt/lib/modules"
        lost = f"mv {sets} /tmp/sets; rm -rf {drivernode.CONTAINER}/lib/modules/*"
        run(guest, f"start; until_ready; kill -9 $(cat /tmp/pid); rmmod nvidia_uvm nvidia_modeset; {lost}")
        status, message, _ = refused(guest)
        assert status == 78
        assert f"this image has no open modules of driver {kmods.MOCK_VERSION}" in message
        assert run(guest, "nvidia_modules") == "nvidia "
        assert run(guest, "driverctl probe 2>/dev/null; echo $?; cat $status") == "1\nNotReady\n"
        out = run(guest, f"mv /tmp/sets {sets}; start; until_ready; nvidia_modules; cat /tmp/log")
        assert out.startswith("nvidia nvidia_modeset nvidia_uvm ")
        assert "load the module nvidia_uvm" in out
        assert "load the module nvidia\n" not in out
        assert run(guest, "driverctl probe; echo $?") == "0\n"


def test_a_driver_that_the_host_loaded_stays_until_it_is_to_be_taken_over(node: Start) -> None:
    with node() as guest:
        sets = f"{drivernode.CONTAINER}/opt/lib/modules/$(uname -r)/open"
        run(guest, f"for name in nvidia nvidia-uvm nvidia-modeset; do insmod {sets}/$name.ko; done")
        for command in ("init", "load", "unload"):
            status, message, _ = refused(guest, f"driverctl {command}")
            assert status == 78, message
            assert "is the host's: no driver container loaded it" in message
            assert "TAKE_OVER_HOST_DRIVER=true" in message
        assert run(guest, "nvidia_modules") == "nvidia nvidia_modeset nvidia_uvm "
        before = run(guest, LOADED)
        out = run(guest, "export TAKE_OVER_HOST_DRIVER=true; start; until_ready; cat /tmp/log")
        assert "unload the module nvidia_uvm" in out
        assert run(guest, LOADED) != before
        assert run(guest, "stop; left").endswith(NOTHING)


@AS_ON_A_FAKE
def test_the_sidecar_loads_peermem_once_the_network_driver_is_there(node: Start) -> None:
    network = f"{drivernode.CONTAINER}/run/mellanox/drivers"
    with node() as guest:
        out = run(
            guest,
            f"""start; until_ready
            (driverctl peermem serve >/tmp/side 2>&1; echo "the sidecar ended with $?") >/tmp/side-ended &
            until grep -q 'network driver' /tmp/side; do sleep 0.2; done
            nvidia_modules
            modprobe ib_core; mkdir -p {network}; touch {network}/.driver-ready
            until grep -q ^nvidia_peermem /proc/modules; do sleep 0.2; done
            driverctl peermem probe; echo "probe $?"
            pkill -TERM -f 'peermem serve'
            until [ -s /tmp/side-ended ]; do sleep 0.2; done
            cat /tmp/side /tmp/side-ended""",
            timeout=120,
        )
        assert out.startswith("nvidia nvidia_modeset nvidia_uvm ")
        assert "probe 0\n" in out
        assert "the sidecar ended with 0" in out
        assert run(guest, "stop; left").endswith(NOTHING)


def test_a_root_that_somebody_unmounts_ends_readiness_and_comes_back_with_the_next_start(node: Start) -> None:
    with node() as guest:
        out = run(
            guest,
            """start; until_ready; umount -l /run/nvidia/driver
            until [ -s /tmp/ended ]; do sleep 0.2; done; cat /tmp/ended /tmp/log
            driverctl probe; echo "probe $?"; start; until_ready; driverctl probe; echo "probe $?" """,
            timeout=120,
        )
        assert out.startswith("70\n")
        assert "/run/nvidia/driver is not this container's root" in out
        assert out.index("probe 1\n") < out.index("probe 0\n")
        assert run(guest, "stop; left").endswith(NOTHING)


# Every wait is a read from a pipe: polling takes the guest's one processor from what it waits for.
BOUNDARIES = f"""
fresh() {{ rm -rf {drivernode.CONTAINER}/lib/modules/$(uname -r)/* /dev/nvidia*; }}
snapshot() {{
    grep ^nvidia /proc/modules | cut -d' ' -f1-4 | sort
    cat $status /run/nvidia/nvidia-driver.state
    left
    stat -c '%n %t %T %a' /dev/nvidia*
    cat {drivernode.CONTAINER}/lib/modules/*/driverforge.json
    find {drivernode.CONTAINER}/lib/modules -name '*.ko' | sort
}}
begin() {{
    coproc INIT {{ exec driverctl init "$@" 2>&1; }}
    init=$INIT_PID
    exec 3<&${{INIT[0]}} 4>&${{INIT[1]}}
}}
end() {{ kill -$1 $init; wait $init 2>/dev/null; exec 3<&- 4>&-; }}
begin_until_ready() {{
    begin
    while read -r line <&3; do
        case $line in *" info ready "*) return 0 ;; esac
        echo "$line"
    done
    return 1
}}
same() {{ diff $1 $2 || {{ echo "$3 after a kill before $killed"; exit 1; }}; }}
fresh; begin_until_ready >/dev/null; snapshot >/tmp/first; end TERM; left >/tmp/first-left
for n in $(seq $first $stride 99); do
    fresh; begin --confirm; killed=
    while read -r line <&3; do
        case $line in
        "step $n:"*) killed=$line; end KILL; break ;;
        "step "*) echo y >&4 ;;
        *" info ready "*) end TERM; break ;;
        esac
    done
    [ "$killed" ] || break
    begin_until_ready >/tmp/log || {{ cat /tmp/log; exit 1; }}
    snapshot >/tmp/again
    same /tmp/first /tmp/again differs
    end TERM
    left >/tmp/again-left
    same /tmp/first-left /tmp/again-left left
    echo "killed before $killed"
done
"""


ALL_STEPS = pytest.mark.full(reason="a start of Python in the guest for each of thirteen steps")


@pytest.mark.parametrize(
    ("first", "stride", "among"),
    [
        pytest.param(3, 5, ("load the module nvidia_modeset", "probe: Ready"), id="some"),
        pytest.param(
            1,
            1,
            (
                "load the module nvidia_uvm",
                "mount this container's root",
                "record the loaded configuration",
                "probe: Ready",
            ),
            id="every",
            marks=ALL_STEPS,
        ),
    ],
)
def test_kill_9_at_step_boundaries_and_a_new_start_give_the_same_state(
    node: Start, first: int, stride: int, among: tuple[str, ...]
) -> None:
    with node() as guest:
        out = run(guest, f"first={first} stride={stride}\n{BOUNDARIES}", timeout=900)
        assert run(guest, "cat /tmp/first-left") == NOTHING
    killed = [line for line in out.splitlines() if line.startswith("killed before step")]
    assert len(killed) == len(range(first, 14, stride)), out
    for what in among:
        assert any(what in line for line in killed), (what, killed)


@AS_ON_A_FAKE
def test_a_second_instance_exits_at_once_and_changes_nothing(node: Start) -> None:
    """D6, against a real lock and a real first instance."""
    with node() as guest:
        files = "for f in $(find /run/nvidia -xdev -type f | sort); do echo $f; cat $f; done"
        run(guest, "start; until_ready")
        before = run(guest, files)
        status, message, _ = refused(guest)
        assert status == 75
        first = run(guest, "cat /tmp/pid").strip()
        assert f"error: another instance serves this node's driver: PID {first}" in message
        assert "next: " in message
        assert run(guest, files) == before
        assert run(guest, "nvidia_modules") == "nvidia nvidia_modeset nvidia_uvm "


def test_signatures_enforced(node: Start, kernel: Kernel) -> None:
    with node() as guest:
        run(guest, "echo 1 >/sys/module/module/parameters/sig_enforce")
        status, message, left = refused(guest)
        assert status == 77
        assert "error: this kernel takes signed modules only, and the modules for it are unsigned" in message
        assert "module.sig_enforce is on" in message
        assert left == NOTHING
        assert kernel.release in message


def test_a_key_that_the_kernel_does_not_know(node: Start, kernel: Kernel, tmp_path: Path) -> None:
    key = kmods.signing_key(tmp_path)
    signed = tmp_path / "signed"
    signed.mkdir()
    for module in kmods.mock(kernel).glob("*.ko"):
        (signed / module.name).write_bytes(module.read_bytes())
        kmods.sign(signed / module.name, kernel, key)
    with node(drivernode.container_files(signed, kernel.release)) as guest:
        run(guest, "echo 1 >/sys/module/module/parameters/sig_enforce")
        status, message, left = refused(guest)
        assert status == 77
        assert "could not insert the module nvidia: the kernel does not accept its signature" in message
        assert "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service" in message
        assert "left on this node: nothing that was not there before" in message
        assert left == NOTHING


@AS_ON_A_FAKE
def test_modules_of_another_kernel(node: Start, kernel: Kernel, kernel_612: Kernel) -> None:
    other = kmods.mock(kernel_612)
    with node(drivernode.container_files(other, kernel.release)) as guest:
        status, message, left = refused(guest)
        assert status == 78
        assert f"it was built for another kernel than {kernel.release}" in message
        assert "Exec format error" in message or "Invalid module format" in message
        assert "kernel: nvidia: disagrees about version of symbol module_layout" in message
        assert f"driverctl build --kernel {kernel.release}" in message
        assert left == NOTHING


def test_a_module_that_fails_in_its_init_leaves_nothing(node: Start) -> None:
    """D1 on a real kernel: the second of three modules fails."""
    with node({"/payload/drivers/nvidia-uvm.conf": "fail=19\n"}) as guest:
        status, message, left = refused(guest)
        assert status == 69
        assert "could not insert the module nvidia_uvm" in message
        assert "modprobe: ERROR: could not insert 'nvidia_uvm': No such device" in message
        assert left == NOTHING


@AS_ON_A_FAKE
def test_no_gpu(node: Start) -> None:
    with node(gpu=False) as guest:
        status, message, left = refused(guest)
        assert status == 69
        assert "error: no NVIDIA GPU on this node" in message
        assert left == NOTHING
        assert run(guest, "find /run/nvidia | wc -l") == "1\n"  # nothing was touched


def test_a_gpu_that_belongs_to_another_driver(node: Start) -> None:
    with node() as guest:
        # the kernel's own driver for passing devices to programs; this kernel has no pci-stub, and vfio-pci
        # wants an IOMMU
        run(guest, "modprobe uio_pci_generic && echo 10de 20b0 >/sys/bus/pci/drivers/uio_pci_generic/new_id")
        status, message, left = refused(guest)
        assert status == 78
        assert "error: every NVIDIA GPU on this node belongs to another driver: uio_pci_generic" in message
        assert "[10de:20b0] is bound to uio_pci_generic" in message
        assert left == NOTHING


@AS_ON_A_FAKE
def test_a_full_disk(node: Start, kernel: Kernel) -> None:
    firmware = {
        f"/payload/opt/driverforge/firmware/nvidia/{kmods.MOCK_VERSION}/gsp_tu10x.bin": bytes(4 << 20)
    }
    facts = drivernode.image_facts(kmods.MOCK_VERSION, kernel.release, firmware="/opt/driverforge/firmware")
    with node({**firmware, "/payload/opt/driverforge/image.json": facts}) as guest:
        small = f"cd {drivernode.CONTAINER}/lib; mkdir -p $PLACE; mount -t tmpfs -o size=1M small $PLACE"
        run(guest, f"PLACE=firmware; {small}")
        status, message, left = refused(guest)
        assert status == 74, message
        assert "no space left while copying" in message
        assert "No space left on device (errno ENOSPC)" in message
        assert "df -h" in message
        assert left == NOTHING
        run(guest, f"PLACE=modules/$(uname -r); {small}")
        status, message, left = refused(guest)
        assert status == 74
        assert "not enough free space for the kernel modules" in message
        assert left == NOTHING


@AS_ON_A_FAKE
def test_not_root(node: Start) -> None:
    with node() as guest:
        plain = f"chroot --userspec=65534:65534 {drivernode.CONTAINER} /usr/local/bin/driverctl init"
        status, message, left = refused(guest, plain)
        assert status == 77
        assert "error: loading a driver needs root" in message
        assert left == NOTHING
