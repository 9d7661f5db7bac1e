"""init: what `driverctl init` adds to the loading of the modules itself.

It is measured in a kernel guest with NVIDIA's real modules.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.result import Measure, Series
from bench.workshop import Workshop
from driverforge_core.errors import Unavailable, Unsupported
from driverforge_core.image import MODULES_ROOT
from support import process
from support.machines import drivernode, kernels, kmods, rootfs
from support.machines.guest import Guest
from support.machines.qemu import PROGRAM

_TYPE = "open"
_SERIES = "6.1"
# Each command runs in a cgroup of its own, so that all that it starts counts. The wait forks nothing: the
# guest has one processor.
_PRELUDE = r"""
mkfifo /run/nap-$$ && exec 9<>/run/nap-$$
status=/run/nvidia/validations/.driver-daemons-status
nap() { read -r -t 0.1 -u 9 || :; }
begin() { group=/sys/fs/cgroup/bench-$1; mkdir -p $group; start=$EPOCHREALTIME; }
end() { # end NAME: a line of JSON; microseconds
    local now=$EPOCHREALTIME word usage
    read -r word usage <$group/cpu.stat
    echo "{\"what\": \"$1\", \"wall\": $(((${now/./} - ${start/./}))), \"cpu\": $usage}"
}
leave() { rmdir $group; }
serve() { # driverctl init until it says Ready
    (echo $BASHPID >$group/cgroup.procs; exec driverctl init >/run/init.log 2>&1) &
    init=$!
    said=
    until [ "$said" = Ready ]; do
        [ -d /proc/$init ] || { cat /run/init.log; exit 1; }
        nap
        [ -e $status ] && read -r said <$status
    done
}
stop() { kill -TERM $init; wait $init; }
"""
# a tree of its own: the node that driverctl sees has no driver
_INSTALL = r"""
set -e
tree=/bare/lib/modules/$(uname -r)
mkdir -p $tree
ln -s /lib/modules/$(uname -r)/* $tree/
rm $tree/modules.[adsw]* $tree/updates 2>/dev/null || true
mkdir $tree/updates
cp /payload/opt/lib/modules/$(uname -r)/*/*.ko $tree/updates/
depmod -b /bare
"""
_ROUND = r"""
set -e
begin modprobe
(echo $BASHPID >$group/cgroup.procs; exec modprobe -d /bare -a nvidia nvidia-uvm nvidia-modeset)
end modprobe; leave
rmmod nvidia_modeset nvidia_uvm nvidia

begin init
serve
end init
[ "$(grep -c '^nvidia' /proc/modules)" = 3 ]
[ -e /dev/nvidiactl ] || mknod -m 666 /dev/nvidiactl c 195 255
sleep 100000 </dev/nvidiactl & holder=$!
stop; leave
[ "$(grep -c '^nvidia' /proc/modules)" = 3 ]

begin restart
loaded=$(stat -c %i /sys/module/nvidia) start=$EPOCHREALTIME # another number after a reload
serve
end restart
[ "$(stat -c %i /sys/module/nvidia)" = "$loaded" ]
kill $holder; wait $holder || true
stop; leave
! grep '^nvidia' /proc/modules
"""


def run(workshop: Workshop) -> tuple[Measure, ...]:
    process.require(PROGRAM)
    with tempfile.TemporaryDirectory(prefix="driverforge-bench-", dir="/var/tmp") as name:
        release, driver, modules = _mocks() if workshop.smallest else _of_an_image(workshop, Path(name))
        headers, booted = kernels.of(release), kernels.image(release)
        fakegpu = kmods.fakegpu(headers)
        runs = workshop.runs or 5
        files = drivernode.container_files(modules, release, driver=driver, module_type=_TYPE)
        machine = rootfs.agent_machine(booted, append=kmods.GPU_MEMORY, memory=3072)
        workshop.say(
            f"a guest with {release}, {runs} rounds after one that is not counted: modprobe, init, restart"
        )
        with Guest.start(machine) as guest:
            drivernode.prepare(guest, files, fakegpu)
            guest.run(_INSTALL).ok()
            rounds = [_round(guest) for _ in range(runs + 1)][1:]
            workshop.note(f"kernel {release} in a guest under {guest.accelerator}")
            if guest.accelerator.kind == "tcg":
                workshop.note("ratios of programs that compute differ on a real processor")
    return tuple(_measures(rounds))


def _of_an_image(workshop: Workshop, folder: Path) -> tuple[str, str, Path]:
    """A kernel release, a driver's version, and the modules of an image for both, copied into a folder."""
    (cell,) = workshop.kernel_cells(1)
    modules = workshop.copy_out(cell, f"{MODULES_ROOT}/{cell.kernel}", folder) / _TYPE
    if not modules.is_dir():
        raise Unsupported(f"the image of {cell} has no {_TYPE} modules")
    return str(cell.kernel), str(cell.driver), modules


def _mocks() -> tuple[str, str, Path]:
    """The same with the bench's stand-ins for NVIDIA's modules, which no engine has to build."""
    kernel = kernels.newest(_SERIES)
    return kernel.release, kmods.MOCK_VERSION, kmods.mock(kernel)


def _round(guest: Guest) -> dict[str, dict[str, float]]:
    """Seconds of wall time and CPU of each command of a round."""
    output = guest.run(f"{_PRELUDE}\n{_ROUND}", timeout=300).ok()
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if len(rows) != 3:
        raise Unavailable("the guest did not measure everything", details=[output])
    return {row["what"]: {key: row[key] / 1e6 for key in ("wall", "cpu")} for row in rows}


def _measures(rounds: list[dict[str, dict[str, float]]]) -> Iterator[Measure]:
    told = {
        "init": "init until Ready",
        "restart": "init until Ready, loads nothing",
        "modprobe": "modprobe of the same modules",
    }
    for what in ("init", "restart"):
        for key, unit in (("cpu", "s CPU"), ("wall", "s")):
            ours, reference = (
                Series(of=told[name], samples=tuple(one[name][key] for one in rounds))
                for name in (what, "modprobe")
            )
            yield Measure(what=what, unit=unit, ours=ours, reference=reference)
