"""build: our compilation of the kernel modules against plain make and against DKMS.

All run in one image with the same headers.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.result import Measure, Series
from bench.workshop import Workshop
from driverforge_core.cell import CellId
from driverforge_core.errors import CommandFailed

_TYPE = "open"
_IMAGE = "driverforge-bench:build"
# The JIT image with what its users do not need: DKMS, the compiler under its usual name, and the headers
# installed as a person has them.
_DOCKERFILE = """\
ARG JIT=scratch
FROM ${JIT}
RUN apt-get -q update && apt-get -q install -y --no-install-recommends dkms gcc
RUN --mount=type=bind,source=scripts,target=/run/driverforge/scripts \\
    --mount=type=bind,source=pins/headers,target=/run/driverforge/pins/headers \\
    /run/driverforge/scripts/fetch-pinned download /run/driverforge/pins/headers /bench/headers \\
    && dpkg --unpack /bench/headers/*.deb
"""
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to the modules: `before` is not counted, `made` is a pattern of what is there when it is done."""

    of: str
    command: str
    made: str
    before: str = ":"


_WAYS = {
    "ours": Way(
        of="driverctl build",
        command="driverctl build --kernel $release --module-type $type "
        "--headers /bench/headers --output /bench",
        made="/bench/opt/lib/modules/$release/$type/nvidia.ko",
    ),
    "make": Way(
        of="make -j modules",
        before="cp -r $source /bench/make",
        command='make -C /bench/make -j"$(nproc)" modules KERNEL_UNAME=$release',
        made="/bench/make/nvidia.ko",
    ),
    "dkms": Way(
        of="dkms add, dkms build",
        command="dkms add $source; dkms build -m nvidia-current-open -v $version -k $release",
        # Debian's dkms.conf gives them other names
        made="/var/lib/dkms/nvidia-current-open/$version/$release/x86_64/module/*.ko*",
    ),
}
# the inner shell's `times` has its own time and that of its children, and nothing of what came before
_SCRIPT = """
set -e
export release={release} type={type} version={version} source=/usr/src/nvidia-{version}/{folder}
{before}
start=$(date +%s.%N)
sh -ec '{{ {command}; }} >/bench/log 2>&1; times' || \
{{ tail -n 60 /bench/log /var/lib/dkms/*/*/build/make.log; exit 1; }}
echo "wall $start $(date +%s.%N)"
ls {made} >/dev/null
"""
_CLOCK = re.compile(r"(\d+)m([\d.]+)s")


def run(workshop: Workshop) -> tuple[Measure, ...]:
    (cell,) = workshop.kernel_cells(1)
    image = _image(workshop, cell)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in _WAYS}
    runs = workshop.runs or 1
    for number in range(runs):
        for name, way in _WAYS.items():
            workshop.say(f"{way.of} for {cell.kernel}, {number + 1} of {runs}")
            samples[name].append(_sample(workshop, image, cell, way))
    told = []
    for index, unit in ((0, "s"), (1, "s CPU")):
        series = {
            name: Series(of=_WAYS[name].of, samples=tuple(sample[index] for sample in taken))
            for name, taken in samples.items()
        }
        told += [
            Measure(what=f"against {name}", unit=unit, ours=series["ours"], reference=series[name])
            for name in ("make", "dkms")
        ]
    workshop.note(
        f"{_TYPE} modules of {cell.driver} for {cell.kernel}; "
        "ours unpacks the headers, strips and checks the modules as well"
    )
    return tuple(told)


def _image(workshop: Workshop, cell: CellId) -> str:
    """The throw-away image; BuildKit keeps its layers for the next time."""
    (jit,) = workshop.built(workshop.jit_cell())
    docker = workshop.docker()
    with tempfile.TemporaryDirectory(prefix="driverforge-bench-") as name:
        context = workshop.generate(cell, Path(name) / "generated")
        file = Path(name) / "Dockerfile"
        file.write_text(_DOCKERFILE)
        # taken from the environment where they are set
        arguments = [word for key in _PROXIES for word in ("--build-arg", key)]
        workshop.say(f"throw-away image {_IMAGE} from {jit}")
        words = (
            "--network",
            docker.network,
            "--build-arg",
            f"JIT={jit}",
            *arguments,
            "-t",
            _IMAGE,
            "-f",
            str(file),
            str(context),
        )
        docker.docker("buildx", "build", "--load", *words)
    return _IMAGE


def _sample(workshop: Workshop, image: str, cell: CellId, way: Way) -> tuple[float, float]:
    """Wall time and CPU, in seconds."""
    folder = {"open": "kernel-open", "proprietary": "kernel"}[_TYPE]
    script = _SCRIPT.format(
        release=cell.kernel,
        type=_TYPE,
        version=cell.driver,
        folder=folder,
        before=way.before,
        command=way.command,
        made=way.made,
    )
    said = workshop.docker().docker(
        "run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", script, check=False
    )
    wall = re.search(r"^wall ([\d.]+) ([\d.]+)$", said.stdout, re.MULTILINE)
    if said.status != 0 or wall is None:
        raise CommandFailed(f"{way.of} failed in the container", details=[said.stdout, said.stderr])
    cpu = sum(int(minutes) * 60 + float(seconds) for minutes, seconds in _CLOCK.findall(said.stdout))
    return float(wall[2]) - float(wall[1]), cpu
