"""compile: driverctl's compilation of NVIDIA's open modules against plain make, and what the cache saves.

Sources and header packages are Debian's, compiler and make this machine's; no engine is needed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.cpu import cpu_of
from bench.result import Measure, Series
from bench.workshop import Workshop
from driverforge_core.errors import Unavailable
from support.machines import kernels
from support.machines.kernels import Kernel
from support.samples import tinydriver
from support.upstream import nvidia_modules

_BRANCH = "535"
_SERIES = "6.1"
# Bytes. Plain make's objects with debug information have half of it.
_ROOM = 4 << 30
# `driverctl build` without an image: the description that it would read there, and a node in a folder
_OURS = """\
import sys
from dataclasses import replace
from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import ImageFacts
from driverforge_core.osid import OsId
from driverforge_driver.compile import job
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.real import real_host
version, source, kernel, debs, folder, node = sys.argv[1:]
host = replace(real_host(), node=RootedFiles(node))
image = ImageFacts(
    os=OsId.parse("debian12"), arch="amd64", driver=DriverVersion(version), payload="packages",
    module_types=("open",), variant="jit", kernels=(), sources={"open": source}, firmware="",
)
request = job.request_for(
    host, image=image, kernel=kernel, module_types=("open",), headers=debs, output=folder,
    work=f"{folder}/work", logs=f"{folder}/logs", epoch=1,
)
job.build(host, request)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A driver's version and the folder of its modules' sources."""

    version: str
    source: Path


def run(workshop: Workshop) -> tuple[Measure, ...]:
    found = [
        kernel
        for package in reversed(kernels.candidates(_SERIES))
        for kernel in [kernels.headers(package)]
        if kernel.resize_arguments == 3 and shutil.which(kernel.compiler)
    ]
    if len(found) < 2:
        raise Unavailable(f"needs two kernels of {_SERIES} that {_BRANCH} compiles for, and their compiler")
    first, second = found[-2:]
    samples: dict[str, list[tuple[float, float]]] = {
        name: [] for name in ("make", "make next", "first", "again", "renamed", "next")
    }
    runs = workshop.runs or 1
    place = _place()
    version = tinydriver.DRIVER if workshop.smallest else nvidia_modules.version(_BRANCH)
    for number in range(runs):
        with tempfile.TemporaryDirectory(prefix="driverforge-bench-", dir=place) as name:
            folder = Path(name)
            driver = _miniature(folder) if workshop.smallest else _nvidias()
            for what, kernel in (
                ("make", first),
                ("first", first),
                ("again", first),
                ("renamed", first),
                ("make next", second),
                ("next", second),
            ):
                workshop.say(f"{what}: {_BRANCH} for {kernel.release}, {number + 1} of {runs}")
                if what.startswith("make"):
                    samples[what].append(_make(folder, driver, kernel))
                else:
                    packages = _packages(folder, kernel, renamed=what == "renamed")
                    samples[what].append(_ours(folder, driver, *packages))
    workshop.note(
        f"open modules of {version}, {first.release}, then {second.release}; ours "
        f"unpacks the headers, strips and checks the modules as well; all in {place}; "
        f"load at the end {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    )
    told = []
    for what, ours, reference in (
        ("empty cache", "first", "make"),
        ("same kernel", "again", "make"),
        ("second kernel of the class", "renamed", "make"),
        ("next kernel of the series", "next", "make next"),
    ):
        for index, unit in ((0, "s CPU"), (1, "s")):
            told.append(
                Measure(
                    what=what,
                    unit=unit,
                    ours=_series("driverctl build", samples[ours], index),
                    reference=_series("make -j modules", samples[reference], index),
                )
            )
    return tuple(told)


def _place() -> str:
    """A folder to compile in: in memory, where there is room.

    ext4 without a journal, as microVMs have it, looks past each file that was removed in the last minutes
    before it makes one: unpacking headers took 8 s of CPU after an earlier build, and 0.7 s in memory.
    """
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > _ROOM:
        # Kbuild runs programs of the headers
        return "/var/tmp" if os.statvfs(memory).f_flag & os.ST_NOEXEC else str(memory)
    return "/var/tmp"


def _series(of: str, samples: list[tuple[float, float]], index: int) -> Series:
    return Series(of=of, samples=tuple(sample[index] for sample in samples))


def _timed(argv: list[str]) -> tuple[float, float]:
    """CPU and wall time, in seconds."""
    start = time.monotonic()
    cpu = cpu_of(argv)
    return cpu, time.monotonic() - start


def _nvidias() -> Driver:
    return Driver(version=nvidia_modules.version(_BRANCH), source=nvidia_modules.source(_BRANCH))


def _miniature(folder: Path) -> Driver:
    """Sources that are compiled in seconds, in the shape of NVIDIA's."""
    for name, text in tinydriver.sources("sources").items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Driver(version=tinydriver.DRIVER, source=folder / "sources")


def _make(folder: Path, driver: Driver, kernel: Kernel) -> tuple[float, float]:
    work = folder / "make"
    shutil.copytree(driver.source, work, symlinks=True)
    words = [f"-j{os.cpu_count()}", "modules", f"SYSSRC={kernel.source}", f"SYSOUT={kernel.build}"]
    took = _timed(["make", "-C", str(work), *words, f"CC={kernel.compiler}", "IGNORE_CC_MISMATCH=1"])
    shutil.rmtree(work)
    return took


def _packages(folder: Path, kernel: Kernel, *, renamed: bool) -> tuple[str, Path]:
    """A release, and the folder with its header packages."""
    debs = folder / ("renamed" if renamed else kernel.release)
    if renamed:
        debs.mkdir()
        return kernels.rebuilt(kernel, debs)[0], debs
    if not debs.exists():
        debs.mkdir()
        for deb in kernels.header_debs(kernel):
            shutil.copy(deb, debs)
    return kernel.release, debs


def _ours(folder: Path, driver: Driver, release: str, debs: Path) -> tuple[float, float]:
    node, out = folder / "node", folder / "out"
    # what was compiled once would be found whole
    shutil.rmtree(node / "var/lib/driverforge/modules", ignore_errors=True)
    for place in (node, out):
        place.mkdir(exist_ok=True)
    words = (driver.version, driver.source, release, debs, out, node)
    return _timed([sys.executable, "-c", _OURS, *map(str, words)])
