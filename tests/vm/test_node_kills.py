"""SIGKILL inside the steps of a JIT image's `init`, on a real kernel: the next pod finishes.

Modules are test doubles. apt, dpkg, make, gcc, modprobe, mounts and signals are real; runc makes the pods.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.machines import jitpods, kmods, rootfs
from support.machines.guest import Guest
from support.machines.kernels import Image, Kernel
from support.process import require
from support.samples import tinydriver
from support.samples.aptrepo import signing_key
from support.skipping import provided

# Every wait is a read from a pipe, or a drawn delay.
SHELL = f"""{jitpods.SHELL}
status=/run/nvidia/validations/.driver-daemons-status
cache=/var/lib/driverforge
begin() {{
    new_pod || exit
    coproc POD {{ run_pod 2>&1; }}
    pod=$POD_PID
    exec 3<&${{POD[0]}} 4>&${{POD[1]}}
}}
end() {{ kill -$1 $(cat $PID_FILE); wait $pod; exec 3<&- 4>&-; }}
# Says yes to each step, and tells the time of each. Returns before the answer to step $1, or once the pod is
# ready.
steps() {{
    while read -r line <&3; do
        echo "$EPOCHREALTIME $line"
        case $line in
        "step $1:"*) return ;;
        "step "*) echo y >&4 ;;
        *" info ready "*) ready=yes; return ;;
        esac
    done
    cat /tmp/log
    exit 1
}}
probe() {{ runc exec driver driverctl probe >/dev/null 2>&1; }}
version() {{ cat /sys/module/$1/version 2>/dev/null; }}
whole() {{
    for name in nvidia nvidia_uvm nvidia_modeset; do
        [ "$(version $name)" = {tinydriver.DRIVER} ] || return
    done
    mountpoint -q /run/nvidia/driver
}}
left() {{
    echo "modules: $(lsmod | awk '/^nvidia/ {{ print $1 }}' | sort | tr '\\n' ' ')"
    echo "mounts: $(grep -c -e /run/nvidia/driver -e driverforge/stage /proc/self/mountinfo)"
    echo "firmware path: $(tr -d '\\0\\n' </sys/module/firmware_class/parameters/path)"
    echo "containers: $(ls /run/runc)"
    ps -eo comm= | grep -xE 'apt.*|dpkg.*|make|modprobe|rmmod|depmod|python3' | sort
    find $ROOT/var/tmp -type f ! -name '*.lock'
    find /run/nvidia -xdev ! -type d | sort
    find $cache -type d | sort
    find $cache -type f -exec sha256sum {{}} + | sort
}}
snapshot() {{
    cat $status /run/nvidia/nvidia-driver.state
    grep ^nvidia /proc/modules | cut -d' ' -f1-4 | sort
    cat $ROOT/lib/modules/*/driverforge.json
    cd /proc/$(cat $PID_FILE)/root/dev && stat -c '%n %t %T %a' nvidia*
    left
}}
"""
STARTED = re.compile(r"^(\d+\.\d+) step \d+: (.*) \[Y/n\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A start that nobody killed: what it does, how long each step takes, how the node is then and after."""

    steps: tuple[str, ...]
    seconds: tuple[float, ...]
    ready: str
    left: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node whose pods compile."""

    guest: Guest

    def run(self, script: str) -> str:
        return self.guest.run(f"{SHELL}\n{script}", timeout=1800).ok()

    def start(self) -> Start:
        """A start and a stop."""
        out = self.run("begin; steps; probe && echo =; snapshot; end TERM; echo =; left")
        log, ready, left = out.split("=\n")
        found = STARTED.findall(log)
        end = float(log.splitlines()[-1].split()[0])
        times = [*(float(time) for time, _ in found), end]
        spent = (then - now for now, then in itertools.pairwise(times))
        return Start(steps=tuple(what for _, what in found), seconds=tuple(spent), ready=ready, left=left)

    def killed(self, number: int, delay: float) -> str:
        """A start that is killed `delay` seconds into a step, with all that it has started.

        The next one goes on from there. Returns how the node is, as `Start` has it, or what is wrong.
        """
        return self.run(f"""
            begin; steps {number} >/tmp/log; echo y >&4; sleep {delay:.3f}; end KILL
            grep -qsx Ready $status && ! whole && echo "half a driver counts as Ready"
            ready=; begin; steps 1 >/tmp/log
            [ "$ready" ] || ! probe || echo "the startup probe passes before the driver is ready"
            [ "$ready" ] || {{ echo y >&4; steps >>/tmp/log; }}
            probe || echo "the startup probe does not pass"
            snapshot; end TERM; echo =; left
        """)


@pytest.fixture
def node(kernel: Kernel, image: Image, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node with a GPU; its pods have the stand-in for make unless the test's parameter says 'gcc'."""
    provided(lambda: require("gpg", "gpgconf", "dpkg-deb"))
    made = None if request.param == "gcc" else kmods.mock(kernel)
    machine = provided(
        lambda: rootfs.agent_machine(image, append=kmods.GPU_MEMORY, memory=1536, toolchain=True)
    )
    with signing_key(tmp_path / "key") as key, Guest.start(machine) as guest:
        archive = jitpods.repository(tmp_path / "repository", key, kernel, small=made is not None)
        jitpods.prepare(guest, archive, kmods.fakegpu(kernel), "init", "--confirm", made=made)
        yield Node(guest)


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize(
    ("node", "kills"),
    [
        pytest.param("stand-in", 4, marks=pytest.mark.full(reason="pods in a guest: four minutes")),
        pytest.param("stand-in", 50, marks=pytest.mark.full(reason="20 minutes")),
        pytest.param("gcc", 6, marks=pytest.mark.full(reason="a compiler without KVM: half an hour")),
    ],
    indirect=["node"],
)
def test_kills_inside_steps_and_the_next_pod_finishes(node: Node, kills: int) -> None:
    """Steps and moments are drawn with a seed; what runs at that moment depends on the machine, too."""
    draw = random.Random(kills)
    compiling = node.start()
    warm = node.start()
    assert (warm.ready, warm.left) == (compiling.ready, compiling.left)
    assert not any(what.startswith("compile ") for what in warm.steps)
    place = next(number for number, what in enumerate(compiling.steps) if what.startswith("compile "))
    for number in range(kills):
        # every fourth while it compiles; else the node's cache has the modules
        cold = number % 4 == 0
        start = compiling if cold else warm
        step = place if cold else draw.randrange(len(start.steps))
        delay = draw.random() * start.seconds[step]
        if cold:
            node.run("rm -r $cache")
        found = node.killed(step + 1, delay)
        moment = f"kill {number}: {delay:.3f} s into '{start.steps[step]}'"
        print(moment)
        assert found == f"{warm.ready}=\n{warm.left}", moment
