"""What the matrix's header probes read off real headers is what a compiler, and NVIDIA's conftest, find.

The headers are those of every kernel of some series that the mirror has, whatever compiler made them: nothing
but declarations is looked at.
"""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.probes import header_probe
from driverforge_core.errors import Unavailable
from driverforge_core.headerprobe import HeaderProbe
from support import aptfetch
from support.machines import kernels
from support.machines.kernels import Kernel
from support.process import missing, run

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels here are x86-64 ones"),
    pytest.mark.skipif(bool(missing("apt-get", "dpkg-deb", "gcc")), reason="needs Debian's packages and gcc"),
]
SERIES = ("6.1", "6.12", "7")
PROBES = [header_probe(row) for row in load_matrix().probes]
# as the kernel's Makefiles have them, as far as they change what is declared
FLAGS = (
    *("-nostdinc", "-D__KERNEL__", "-DMODULE", "-std=gnu11", "-fms-extensions", "-fshort-wchar"),
    *(
        "-funsigned-char",
        "-m64",
        "-mno-sse",
        "-mno-mmx",
        "-mno-sse2",
        "-mno-red-zone",
        "-fno-pic",
        "-fno-pie",
    ),
    *("-mcmodel=kernel", "-O2", "-Werror=implicit-function-declaration"),
)


def flags(kernel: Kernel) -> list[str]:
    source, output = kernel.source, kernel.build
    folders = [
        (source, "arch/x86/include"),
        (output, "arch/x86/include/generated"),
        (source, "include"),
        (output, "include"),
        (source, "arch/x86/include/uapi"),
        (output, "arch/x86/include/generated/uapi"),
        (source, "include/uapi"),
        (output, "include/generated/uapi"),
    ]
    first = (f"{source}/include/linux/{name}.h" for name in ("compiler-version", "kconfig", "compiler_types"))
    return [
        *FLAGS,
        *(f"-I{tree / folder}" for tree, folder in folders),
        *(word for path in first for word in ("-include", path)),
    ]


def errors(kernel: Kernel, header: str, use: str = "") -> list[str]:
    text = f"#include <{header.removeprefix('include/')}>\n#include <linux/stddef.h>\n{use}\n"
    asked = run("gcc", *flags(kernel), "-fsyntax-only", "-x", "c", "-", stdin=text, check=False)
    found = [line for line in asked.stderr.splitlines() if "error:" in line]
    assert (asked.status == 0) == (not found)
    return found


def compiles(kernel: Kernel, probe: HeaderProbe, use: str) -> bool:
    found = errors(kernel, probe.header, use)
    # whatever else is wrong would look like an answer
    assert all(probe.symbol in line for line in found), found
    return not found


def breaks(kernel: Kernel, probe: HeaderProbe) -> bool:
    """What the compiler says to what a driver does."""
    if probe.kind == "arguments":
        zeros = ", ".join(["(void *)0", *["0"] * ((probe.arguments or 0) - 1)])
        return compiles(kernel, probe, f"int f(void) {{ return {probe.symbol}({zeros}); }}")
    if probe.kind == "missing-member":
        offset = f"offsetof(struct {probe.struct}, {probe.symbol})"
        return not compiles(kernel, probe, f"unsigned long f(void) {{ return {offset}; }}")
    # a macro is no value, a function has parameters of its own
    use = f"#ifndef {probe.symbol}\nvoid *f(void) {{ return (void *){probe.symbol}; }}\n#endif"
    return not compiles(kernel, probe, use)


def kernels_of(choice: str) -> list[Kernel]:
    """Those of the mirror that gcc can read: all, or the newest and the oldest of each series."""
    packages = [kernels.candidates(series) for series in SERIES]
    if choice == "ends":
        packages = [[*found[:1], *found[1:][-1:]] for found in packages]
    there = [kernels.headers(package) for found in packages for package in found]
    # the newest ones may want a newer compiler
    found = [kernel for kernel in there if not errors(kernel, "include/linux/pci.h")]
    if not found:
        pytest.skip(f"headers that gcc can read: none of {len(there)} kernels' of the mirror")
    return found


CHOICES = pytest.mark.parametrize(
    "choice",
    ["ends", pytest.param("all", marks=pytest.mark.full(reason="every kernel of the mirror"))],
)


@CHOICES
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.symbol)
def test_a_probe_finds_what_the_compiler_finds(probe: HeaderProbe, choice: str) -> None:
    for kernel in kernels_of(choice):
        said = probe.breaks((kernel.source / probe.header).read_text())
        assert (said is not None) == breaks(kernel, probe), (kernel.release, said)


@CHOICES
def test_conftest_answers_as_the_probe_does(tmp_path: Path, choice: str) -> None:
    """NVIDIA's script asks one of the probes' questions; the answer is in the record beside the modules."""
    (probe,) = (probe for probe in PROBES if probe.symbol == "__vm_flags")
    archive = aptfetch.archive()
    try:
        package = archive.newest("nvidia-open-kernel-dkms", suite="trixie")
    except Unavailable as error:
        pytest.skip(error.brief)
    (source,) = (archive.unpacked([package]) / "usr/src").iterdir()
    shutil.copy(source / "conftest.sh", tmp_path)
    (tmp_path / "conftest").mkdir()
    # one of the answers to what headers there are; the script's own text needs it
    (tmp_path / "conftest/headers.h").write_text("#define NV_GENERATED_AUTOCONF_H_PRESENT\n")
    for kernel in kernels_of(choice):
        words = ("gcc", "x86_64", kernel.source, kernel.build, "compile_tests", " ".join(flags(kernel)))
        asked = run("sh", "conftest.sh", *words, "vm_area_struct_has_const_vm_flags", cwd=tmp_path)
        said = probe.breaks((kernel.source / probe.header).read_text())
        word = "#define" if said is None else "#undef"
        assert asked.stdout.split() == [word, "NV_VM_AREA_STRUCT_HAS_CONST_VM_FLAGS"], kernel.release
