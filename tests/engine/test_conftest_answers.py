"""The answers to NVIDIA's probes are the ones of a plain build, for drivers and kernels that Debian has.

The oracle is NVIDIA's own Kbuild: what it writes into conftest/ is compared byte by byte with what we write,
first with the compiler asked and then from the cache. A driver that is too old to compile for a kernel has
answers, too.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable, Unsupported
from driverforge_driver.compile import conftest, whole
from driverforge_driver.compile.compiler import make_arguments
from driverforge_driver.compile.memory import Digests, Memory, Place
from driverforge_driver.family.protocol import HeaderTree
from driverforge_host.adapters.real import real_host
from engine.test_compile_objects import headers_of
from support import aptfetch
from support.machines import compilers, kernels
from support.machines.kernels import Kernel
from support.process import missing, run

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels here are x86-64 ones"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "make", "gcc")), reason="needs Debian's packages, make and gcc"
    ),
]

# (package, suite) of every kind of sources that Debian has: four branches, open and proprietary
DRIVERS = (
    ("nvidia-open-kernel-dkms", "bookworm"),
    ("nvidia-open-kernel-dkms", "trixie"),
    ("nvidia-kernel-dkms", "bookworm"),
    ("nvidia-kernel-dkms", "trixie"),
    ("nvidia-tesla-kernel-dkms", "bookworm"),
    ("nvidia-tesla-470-kernel-dkms", "bookworm"),
    ("nvidia-tesla-535-kernel-dkms", "trixie"),
)
FLAVOURS = ("cloud-amd64", "amd64", "rt-amd64")
HEADERS = ("headers", *conftest.CATEGORIES)


def sources(name: str, suite: str) -> Path:
    archive = aptfetch.archive()
    try:
        package = archive.newest(name, suite=suite)
    except Unavailable as error:
        pytest.skip(error.brief)
    return next((archive.unpacked([package]) / "usr/src").iterdir())


def candidates(series: str, flavour: str) -> list[Kernel]:
    """Kernels whose compiler is here."""
    found = [kernels.headers(package) for package in kernels.candidates(series, flavour=flavour)]
    return [kernel for kernel in found if shutil.which(kernel.compiler)]


def with_newer_compilers(series: str, flavour: str, environment: pytest.MonkeyPatch) -> list[Kernel]:
    """Those, and the ones whose compiler a newer Debian has."""
    packages = kernels.candidates(series, flavour=flavour)
    for name in {kernels.headers(package).compiler for package in packages}:
        if folder := compilers.folder(name):
            environment.setenv("PATH", str(folder), prepend=os.pathsep)
    return candidates(series, flavour)


def work_folder(tree: Path, folder: Path) -> Path:
    folder.mkdir(parents=True)
    run("cp", "-rs", f"{tree}/.", folder)
    return folder


def make(kernel: Kernel, modules: str) -> tuple[str, ...]:
    words = ("make", "-j2", "modules", f"SYSSRC={kernel.source}", f"SYSOUT={kernel.build}")
    chosen = [f"NV_KERNEL_MODULES={modules}"] if modules else []
    chosen += ["IGNORE_PREEMPT_RT_PRESENCE=1"] if "-rt-" in kernel.release else []
    return (*words, f"CC={kernel.compiler}", "IGNORE_CC_MISMATCH=1", "KCFLAGS=-g0", *chosen)


def plain(tree: Path, kernel: Kernel, folder: Path, modules: str) -> tuple[dict[str, str], list[str]]:
    """What NVIDIA's Kbuild writes, told to make these headers and no module, and the flags that it tells of.

    Branch 470 tells of none.
    """
    work = work_folder(tree, folder)
    (work / "Kbuild").rename(work / "Kbuild.nvidia")
    wanted = " ".join(f"conftest/{name}.h" for name in HEADERS)
    text = f"include $(src)/Kbuild.nvidia\nobj-m :=\nalways := {wanted}\nalways-y := {wanted}\n"
    (work / "Kbuild").write_text(text)
    said = run(*make(kernel, modules), cwd=work).stdout
    flags = re.findall(r"^NV_CONFTEST_CFLAGS=(.*)$", said, re.MULTILINE)
    return {name: (work / f"conftest/{name}.h").read_text() for name in HEADERS}, flags


def ours(
    tree: Path, kernel: Kernel, folder: Path, modules: str, kept: Path, flags: Sequence[str] = ()
) -> conftest.Outcome:
    host = real_host()
    work = str(work_folder(tree, folder))
    headers = HeaderTree(root=str(kernel.headers), source=str(kernel.source), output=str(kernel.build))
    question = whole.everything(host, headers, (str(tree),), f"{work}/conftest.sh")
    assert question
    script = conftest.read_script(host, work, make(kernel, modules))
    for said in flags:
        # of each process its number, and of each work folder its own
        theirs = re.sub(r"#conftest\d+", "#conftest", said).replace(str(folder.parent / "plain"), work)
        assert theirs.split() == list(script.flags.words)
    folders = {str(kernel.build): "@OUTPUT@", str(kernel.source): "@SOURCE@", work: "@WORK@"}
    place = Place(folders=folders, context="0" * 64)
    memory = Memory(host.files, str(kept), place, Digests(files=host.files))
    outcome = conftest.answer(host, script, memory, place, work=work, jobs=2)
    whole.learn(host, memory, question, outcome, output=str(kernel.build), work=work)
    memory.keep()
    # what the next build of the same would be given, without make and the script
    shutil.rmtree(f"{work}/conftest")
    memory = Memory(host.files, str(kept), place, Digests(files=host.files))
    found = whole.recall(host, memory, question, name=kernel.release, work=work)
    assert found is not None
    assert {name: found.headers[name] for name in HEADERS} == outcome.headers
    return outcome


def compare(tree: Path, kernel: Kernel, tmp_path: Path, modules: str = "") -> None:
    wanted, flags = plain(tree, kernel, tmp_path / "plain", modules)
    first = ours(tree, kernel, tmp_path / "first", modules, tmp_path / "kept", flags)
    assert first.headers == wanted
    assert first.compiled > 0
    again = ours(tree, kernel, tmp_path / "again/elsewhere", modules, tmp_path / "kept")
    assert again.headers == wanted
    assert again.compiled == 0


def one_kernel(flavour: str) -> Kernel:
    kernel = next(iter(candidates("6.1", flavour)), None)
    if kernel is None:
        pytest.skip(f"no 6.1 kernel of flavour {flavour} whose compiler is here")
    return kernel


def test_answers_of_two_small_modules_are_the_plain_builds(tmp_path: Path) -> None:
    compare(sources(*DRIVERS[1]), one_kernel("cloud-amd64"), tmp_path, "nvidia-modeset nvidia-peermem")


@pytest.mark.full(reason="asks the compiler about another kernel")
@pytest.mark.parametrize(
    "driver",
    [
        pytest.param(DRIVERS[0], id="open"),
        pytest.param(DRIVERS[2], id="proprietary", marks=pytest.mark.full(reason="more of the same")),
    ],
)
def test_nvidias_own_check_refuses_a_real_time_kernel_until_our_make_says_that_it_is_meant(
    tmp_path: Path, driver: tuple[str, str]
) -> None:
    kernel, work = one_kernel("rt-amd64"), str(work_folder(sources(*driver), tmp_path / "work"))

    def asked(*, realtime: bool) -> conftest.Script:
        words = make_arguments(headers_of(kernel), work=work, jobs=2, realtime=realtime)
        return conftest.read_script(real_host(), work, words)

    with pytest.raises(Unsupported) as refused:
        asked(realtime=False)
    assert "preempt_rt_sanity_check] Error" in refused.value.details[0]
    assert asked(realtime=True).tests["functions"]


@pytest.mark.full(reason="asks the compiler twice about 400 probes for each driver and kernel")
@pytest.mark.timeout(3600)  # a case has up to six kernels, two minutes each
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("series", ["6.1", "6.12", "7"])
@pytest.mark.parametrize("driver", DRIVERS, ids=["-".join(driver) for driver in DRIVERS])
def test_answers_are_the_plain_builds(
    tmp_path: Path, driver: tuple[str, str], series: str, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = with_newer_compilers(series, flavour, monkeypatch)
    if not found:
        pytest.skip(f"no {series} kernel of flavour {flavour} whose compiler can be had")
    tree = sources(*driver)
    for kernel in found:
        compare(tree, kernel, tmp_path / kernel.release)
