"""A stop signal or Ctrl-C during `driverctl build`: every program ends, nothing is left or published."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import ImageFacts
from driverforge_core.osid import OsId
from driverforge_host.adapters.processes import KernelProcesses
from support.fakes.mockpath import MockPath
from support.process import missing
from support.samples.aptrepo import Deb, build_deb

pytestmark = pytest.mark.skipif(
    bool(missing("dpkg-deb")), reason="dpkg-deb makes and unpacks the header packages here"
)

ENTRYPOINTS = Path(__file__).resolve().parents[2] / "entrypoints"
RELEASE = "6.1.0-50-cloud-amd64"
FLAVOUR, COMMON = f"usr/src/linux-headers-{RELEASE}", "usr/src/linux-headers-6.1.0-50-common"
CONFIG = 'CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"\n'
PACKAGES = (
    Deb(
        name=f"linux-headers-{RELEASE}",
        version="6.1.176-1",
        files={
            f"{FLAVOUR}/.config": CONFIG,
            f"{FLAVOUR}/.kernelvariables": "CC = $(CROSS_COMPILE)gcc-12\n",
            f"{FLAVOUR}/Makefile": f"include /{COMMON}/Makefile\n",
            f"{FLAVOUR}/scripts/Makefile.build": "",
        },
    ),
    Deb(
        name="linux-headers-6.1.0-50-common",
        version="6.1.176-1",
        arch="all",
        files={
            f"{COMMON}/Makefile": "all:\n",
            f"{COMMON}/include/linux/pci.h": (
                "int pci_resize_resource(struct pci_dev *dev, int i, int size);\n"
            ),
        },
    ),
    Deb(
        name="linux-kbuild-6.1",
        version="6.1.176-1",
        files={"usr/lib/linux-kbuild-6.1/scripts/Makefile.build": ""},
    ),
)
MAKE = "sleep 600 & echo compiler $!; wait"

# driverctl as on Debian 12, with a node of the test's own
BUILD = """
from dataclasses import replace
from driverforge_core.errors import DriverforgeError
from driverctl.cli import run
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.real import real_host

class Debian12(RootedFiles):
    def read_text(self, path):
        return 'ID=debian\\nVERSION_ID="12"\\n' if path == "/etc/os-release" else super().read_text(path)

try:
    status = run(sys.argv[2:], lambda: replace(real_host(), files=Debian12(), node=RootedFiles(sys.argv[1])))
except DriverforgeError as error:
    print(error.render(), file=sys.stderr)
    status = error.exit_code
sys.exit(status)
"""

# a program of ours that knows nothing of stop signals
PLAIN = """
import os, signal
from driverforge_host.adapters.subprocesses import SystemCommands
from driverforge_core.log import configure
configure("text")
signal.signal(signal.SIGINT, signal.default_int_handler)  # inherited as ignored where a shell runs the \
tests in the background
SystemCommands(os.environ).run(["make"], stream=True)
"""


@pytest.fixture
def tools(tmp_path: Path) -> MockPath:
    made = MockPath(tmp_path / "bin")
    made.add("make", MAKE)
    made.add("gcc-12", "echo 'gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0'")
    for name in ("ld", "objdump", "strip", "update-ca-certificates"):
        made.add(name)
    return made


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """`driverctl build` in a JIT image, with header packages from a folder."""
    (tmp_path / "src/kernel-open/nvidia").mkdir(parents=True)
    (tmp_path / "node").mkdir()
    for package in PACKAGES:
        build_deb(package, tmp_path / "debs" / f"{package.name}.deb")
    image = ImageFacts(
        os=OsId.parse("debian12"),
        arch="amd64",
        driver=DriverVersion("535.261.03"),
        payload="packages",
        module_types=("open",),
        variant="jit",
        kernels=(),
        sources={"open": str(tmp_path / "src/kernel-open")},
        firmware="",
    )
    (tmp_path / "image.json").write_text(image.to_json())
    folders = {"--headers": "debs", "--output": "out", "--work-dir": "work", "--image": "image.json"}
    options = [word for option, name in folders.items() for word in (option, str(tmp_path / name))]
    return [str(tmp_path / "node"), "build", "--kernel", RELEASE, *options]


def stopped(code: str, arguments: list[str], tools: MockPath, number: signal.Signals) -> tuple[int, str, int]:
    """(exit status, what it said, PID of a compiler) of a program that gets a signal once a compiler runs."""
    whole = f"import sys; sys.path.insert(0, {str(ENTRYPOINTS)!r})\n{code}"
    argv = [sys.executable, "-c", whole, *arguments]
    environ = tools.environ({"SOURCE_DATE_EPOCH": "1700000000"})
    with subprocess.Popen(
        argv, stderr=subprocess.PIPE, text=True, env=environ, start_new_session=True
    ) as running:
        assert running.stderr is not None
        said, compiler = "", None
        for line in running.stderr:
            said += line
            if found := re.search(r"compiler (\d+)", line):
                compiler = int(found[1])
                running.send_signal(number)
        assert compiler, said
    return running.returncode, said, compiler


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_the_compilers_and_leaves_nothing(
    tmp_path: Path, tools: MockPath, arguments: list[str], number: signal.Signals
) -> None:
    status, said, compiler = stopped(BUILD, arguments, tools, number)
    assert status == 75
    assert f"error: make stopped by {number.name}" in said
    assert not KernelProcesses().alive(compiler)
    assert not list((tmp_path / "work").glob("535*/"))
    assert not (tmp_path / "out").exists()


def test_a_stop_signal_ends_the_wait_for_a_mirror(
    tmp_path: Path, tools: MockPath, arguments: list[str]
) -> None:
    tools.add("apt-get", MAKE)
    headers = arguments.index("--headers")
    status, said, program = stopped(
        BUILD, [*arguments[:headers], *arguments[headers + 2 :]], tools, signal.SIGTERM
    )
    assert status == 75
    assert "error: apt-get stopped by SIGTERM" in said
    assert not KernelProcesses().alive(program)
    assert not list((tmp_path / "work").glob("535*/"))


def test_ctrl_c_in_a_program_without_handlers_ends_what_it_started(tools: MockPath) -> None:
    status, said, compiler = stopped(PLAIN, [], tools, signal.SIGINT)
    assert status == -signal.SIGINT
    assert "KeyboardInterrupt" in said
    assert not KernelProcesses().alive(compiler)
