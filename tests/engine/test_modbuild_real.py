"""`driverctl build` with a real kernel's headers, its compiler and Kbuild.

The sources are a small tree of the shape of NVIDIA's.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import Unavailable, Unsupported
from driverforge_core.image import ImageFacts, ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_core.modinfo import read_modinfo
from driverforge_core.osid import OsId, OsRelease
from driverforge_driver.compile.job import BuildRequest, Origin, build
from driverforge_driver.family import debian
from driverforge_driver.packages import apt
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.real import real_host
from support import aptfetch
from support.machines import kernels
from support.machines.kernels import Kernel
from support.process import missing

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels here are x86-64 ones"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "make", "gcc")), reason="needs Debian's packages, make and gcc"
    ),
]

# NVIDIA's Makefile in short: the same calls of Kbuild, a folder a module, a prebuilt object that is linked in
MAKEFILE = """modules:
	$(MAKE) -C $(SYSSRC) KBUILD_OUTPUT=$(SYSOUT) M=$(CURDIR) modules
"""
KBUILD = """obj-m := nvidia.o nvidia-uvm.o
nvidia-y := nvidia/nv.o
nvidia-uvm-y := nvidia-uvm/uvm.o
ccflags-y += -I$(src)/common
"""
NV = """#include <linux/module.h>
#include <nv.h>
int nvidia_shared(int x) { WARN_ON(x < 0); return NV_ANSWER; }
EXPORT_SYMBOL(nvidia_shared);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION("535.261.03");
"""
UVM = """#include <linux/module.h>
extern int nvidia_shared(int x);
static int __init up(void) { return nvidia_shared(1) == 42 ? 0 : -EINVAL; }
module_init(up);
MODULE_LICENSE("Dual MIT/GPL");
"""
SOURCES = {
    "Makefile": MAKEFILE,
    "Kbuild": KBUILD,
    "common/nv.h": "#define NV_ANSWER 42\n",
    "nvidia/nv.c": NV,
    "nvidia-uvm/uvm.c": UVM,
}


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    try:
        return kernels.newest("6.1")
    except Unavailable as error:
        pytest.skip(f"no kernel to build for: {error.brief}")


def header_packages(release: str, folder: Path) -> Path:
    """The packages that driverctl would fetch for a kernel, by its own reading of their dependencies."""
    archive = aptfetch.archive()
    first = next(
        package
        for package in kernels.candidates(".".join(release.split(".")[:2]))
        if package.name == f"linux-headers-{release}"
    )
    depends = apt.relations(archive.field(first, "Depends"), debian.header_dependencies())
    rest = [
        next(package for package in archive.versions(name) if version in ("", package.version))
        for name, version in depends
    ]
    folder.mkdir()
    for deb in archive.download([first, *rest]):
        shutil.copy(deb, folder)
    return folder


def request(
    folder: Path, release: str, sources: Mapping[str, str], *, driver: str = "535.261.03"
) -> BuildRequest:
    for name, text in sources.items():
        path = folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    image = ImageFacts(
        os=OsId.parse("debian12"),
        arch="amd64",
        driver=DriverVersion(driver),
        payload="packages",
        module_types=("open",),
        variant="jit",
        kernels=(),
        sources={"open": str(folder / "src")},
        firmware="",
    )
    return BuildRequest(
        image=image,
        release=OsRelease(id="debian", version="12", codename="bookworm", like=(), pretty_name="Debian"),
        kernel=KernelRelease.parse(release),
        module_types=("open",),
        jobs=2,
        headers=str(header_packages(release, folder / "debs")),
        output=str(folder / "out"),
        work=str(folder / "work"),
        logs=str(folder / "logs"),
        epoch=1_700_000_000,
    )


def test_modules_for_a_real_kernel_that_do_not_depend_on_the_place(kernel: Kernel, tmp_path: Path) -> None:
    asked = request(tmp_path, kernel.release, SOURCES)
    host = replace(real_host(), node=RootedFiles(str(tmp_path / "node")))
    (built,) = build(host, asked)
    described = ModuleSet.from_json(Path(built.path, "module-set.json").read_text())
    assert set(described.modules) == {"nvidia.ko", "nvidia-uvm.ko"}
    assert described.compiler.startswith(kernel.compiler)
    uvm = Path(built.path, "nvidia-uvm.ko").read_bytes()
    assert read_modinfo(uvm)["depends"] == ["nvidia"]
    assert read_modinfo(uvm)["vermagic"][0].split()[0] == kernel.release
    for module in Path(built.path).glob("*.ko"):
        assert str(tmp_path).encode() not in module.read_bytes()
        assert b".debug_info" not in module.read_bytes()
    elsewhere = replace(
        asked, work=str(tmp_path / "a/longer/place/to/work/in"), output=str(tmp_path / "again")
    )
    host = replace(host, node=RootedFiles(str(tmp_path / "another-node")))
    (again,) = build(host, elsewhere)
    assert again.origin is Origin.COMPILED
    assert ModuleSet.from_json(Path(again.path, "module-set.json").read_text()) == described


def test_a_kernel_with_the_four_argument_resize_is_blocked_before_any_compiler_runs(tmp_path: Path) -> None:
    try:
        blocked = kernels.newest("6.12", resize_arguments=4, native=False)
    except Unavailable as error:
        pytest.skip(f"the mirror has no such kernel: {error.brief}")
    asked = request(tmp_path, blocked.release, SOURCES, driver="550.163.01")
    with pytest.raises(Unsupported, match=r"pci_resize_resource\(\) has four arguments") as caught:
        build(real_host(), asked)
    assert caught.value.details[0].startswith("include/linux/pci.h:")
    assert not (tmp_path / "logs").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.full(reason="compiles NVIDIA's own open modules: three to six minutes")
def test_nvidias_open_modules(kernel: Kernel, tmp_path: Path) -> None:
    archive = aptfetch.archive()
    package = archive.newest("nvidia-open-kernel-dkms", suite="bookworm")
    unpacked = archive.unpacked([package])
    (tree,) = (unpacked / "usr/src").iterdir()
    asked = request(tmp_path, kernel.release, {}, driver=package.version.rpartition("-")[0])
    asked = replace(asked, image=replace(asked.image, sources={"open": str(tree)}))
    (built,) = build(replace(real_host(), node=RootedFiles(str(tmp_path / "node"))), asked)
    described = ModuleSet.from_json(Path(built.path, "module-set.json").read_text())
    assert len(described.modules) == 5
    assert Path(built.path, "conftest.txt").read_text().count("#undef NV_") > 50
    versions = [
        read_modinfo(Path(built.path, name).read_bytes()).get("version")
        for name in ("nvidia.ko", "nvidia-uvm.ko")
    ]
    assert versions == [[str(asked.image.driver)], [str(asked.image.driver)]]
