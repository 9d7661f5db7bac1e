"""Ubuntu 24.04 as far as Debian 13 has it.

The archive is made by apt-ftparchive. Interpreter, kmod, make, compiler and libraries are Debian's packages
as they are; Debian 13 has the names of 24.04's (libelf1t64, gcc-13). Its kernel is Debian's 6.1 under the
name of one of Ubuntu's. Canonical's modules are mocks, finished ones and objects that the package's own
script links.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from support import aptfetch
from support.likes import headers, modules
from support.likes.likeness import STANDS_IN, Likeness, likeness, write
from support.machines import kernels
from support.machines.kernels import Kernel
from support.samples.aptrepo import Deb, SigningKey, build_deb
from support.samples.ubuntuarchive import Pockets, publish

RELEASE = "6.8.0-136-generic"
VERSION = "6.8.0-136.136"
DRIVER = "580.173.02"
_COMMON = "linux-headers-6.8.0-136"
_SUITE = "trixie"
_PROGRAMS = ("python3", "kmod", "make", "gcc-13", "libelf1t64", "libssl3t64", "zlib1g", "zstd")
_SERVER = "580-server"

_BASE = {
    "Dockerfile": "ARG DEBIAN\nFROM ${DEBIAN}\nRUN rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*\n"
    "COPY etc/ /etc/\nCOPY usr/ /usr/\n",
    "etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.4 LTS, a likeness on Debian"\nNAME="Ubuntu"\n'
    'VERSION_ID="24.04"\nVERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n',
    # as the base image has it
    "etc/apt/sources.list.d/ubuntu.sources": "".join(
        f"Types: deb\nURIs: http://{host}/ubuntu/\nSuites: {suites}\nComponents: main universe restricted\n"
        "Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n\n"
        for host, suites in (
            ("archive.ubuntu.com", "noble noble-updates"),
            ("security.ubuntu.com", "noble-security"),
        )
    ),
}

_BUILD = """\
# links the modules where the package is installed, as the script of Canonical's package does
ld -r -o ../nvidia.ko nvidia.o nvidia.mod.o
ld -r -o ../nvidia-uvm.ko nvidia-uvm.o nvidia-uvm.mod.o
"""


def ubuntu() -> Likeness:
    return likeness(
        "ubuntu24.04",
        suite=_SUITE,
        kernel=kernels.newest("6.1"),
        programs=_PROGRAMS,
        make=_make,
    )


def _make(folder: Path, kernel: Kernel, key: SigningKey) -> None:
    archive = aptfetch.archive()
    with tempfile.TemporaryDirectory(prefix="df-likes-", dir="/var/tmp") as name:
        work = Path(name)
        pockets: Pockets = {
            "noble": {
                "main": archive.download(archive.with_dependencies(_PROGRAMS, suite=_SUITE)),
                "restricted": (),
                "universe": (),
            },
            "noble-updates": {
                "main": _kernel(work, kernel),
                "restricted": (*_modules(work, kernel), *_driver()),
                "universe": (),
            },
        }
        publish(folder / "hosts/archive.ubuntu.com/ubuntu", key, pockets, "amd64")
    security: Pockets = {"noble-security": {"main": (), "restricted": (), "universe": ()}}
    publish(folder / "hosts/security.ubuntu.com/ubuntu", key, security, "amd64")
    write(folder / "base", _BASE)
    keyrings = folder / "base/usr/share/keyrings"
    keyrings.mkdir(parents=True)
    (keyrings / "ubuntu-archive-keyring.gpg").write_bytes(key.keyring.read_bytes())


def _built(work: Path, deb: Deb) -> Path:
    """A package made now, for its tree is gone when the archive is indexed."""
    path = work / f"{deb.name}_{deb.version}_{deb.arch}.deb"
    build_deb(deb, path)
    return path


def _thin(name: str, version: str = VERSION, depends: str = "") -> Deb:
    said = {f"usr/share/doc/{name}/stand-in": STANDS_IN}
    return Deb(name=name, version=version, depends=depends, files=said)


def _guise(kernel: Kernel) -> headers.Guise:
    told = "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"
    return headers.Guise(kernel=kernel, release=RELEASE, compiler=told)


def _kernel(work: Path, kernel: Kernel) -> list[Deb | Path]:
    headers.ubuntu(_guise(kernel), work / "common", work / "flavour", shared=_COMMON)
    linked = f"{_COMMON}, libc6 (>= 2.38), libelf1t64 (>= 0.144), libssl3t64 (>= 3.0.0), zlib1g"
    common = Deb(name=_COMMON, version=VERSION, arch="all", tree=work / "common")
    flavour = Deb(name=f"linux-headers-{RELEASE}", version=VERSION, depends=linked, tree=work / "flavour")
    image = _thin(f"linux-image-{RELEASE}", depends=f"linux-modules-{RELEASE}")
    return [_built(work, common), _built(work, flavour), image, _thin(f"linux-modules-{RELEASE}")]


def _modules(work: Path, kernel: Kernel) -> list[Deb | Path]:
    """Canonical's packages of one kernel: finished open modules, and objects of the proprietary ones."""
    output = headers.ubuntu(_guise(kernel), work / "build", work / "build", shared=_COMMON)
    folder = f"lib/modules/{RELEASE}/kernel/nvidia-580srv"
    with modules.compiled(output, output, compiler=kernel.compiler, version=DRIVER) as made:
        modules.copy(made, work / "open" / f"{folder}-open")
        modules.copy(made, work / "closed" / folder / "bits", "nvidia*.o")
    (work / "closed" / folder / "bits/BUILD").write_text(_BUILD)
    bound = f"nvidia-kernel-common-{_SERVER} (>= {DRIVER}), nvidia-kernel-common-{_SERVER} (<= {DRIVER}-1)"
    found: list[Deb | Path] = [_thin(f"linux-signatures-nvidia-{RELEASE}")]
    for kind, tree in ((f"{_SERVER}-open", "open"), (_SERVER, "closed")):
        name = f"linux-objects-nvidia-{kind}-{RELEASE}"
        found.append(_built(work, Deb(name=name, version=VERSION, depends="binutils", tree=work / tree)))
        needs = f"linux-image-{RELEASE}, {name} (= {VERSION}), {bound}"
        found.append(_thin(f"linux-modules-nvidia-{kind}-{RELEASE}", depends=needs))
    return found


def _driver() -> list[Deb]:
    """The user space, whose programs say what they are; the firmware's name holds the version."""
    version = f"{DRIVER}-0ubuntu0.24.04.1"
    smi = '#!/bin/sh\necho "nvidia-smi: stands in for the real one in driverforge\'s tests"\n'
    firmware = {f"lib/firmware/nvidia/{DRIVER}/{name}.bin": STANDS_IN for name in ("gsp_ga10x", "gsp_tu10x")}
    libraries = ("compute", "decode", "encode", "extra", "gl", "fbc1")
    return [
        Deb(
            name=f"nvidia-utils-{_SERVER}",
            version=version,
            depends=f"libnvidia-compute-{_SERVER} (= {version})",
            files={"usr/bin/nvidia-smi": smi},
        ),
        *(_thin(f"libnvidia-{name}-{_SERVER}", version) for name in libraries),
        _thin(f"nvidia-headless-no-dkms-{_SERVER}", version, f"libnvidia-compute-{_SERVER} (= {version})"),
        Deb(name=f"nvidia-firmware-{_SERVER}-{DRIVER}", version=version, files=firmware),
    ]
