"""A system that is like another one: its repositories, and a base image whose package manager knows them.

Real: apt, dnf, zypper, rpm and dpkg (Debian's packages of them), the repositories' formats, signatures and
addresses, and what the packages with programs hold, which is Debian's own. Not real: the base image is a
Debian with the other system's os-release, repository files and keys, and its packages have the other
system's names and versions. What has no program in it says that it stands in.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import aptfetch, cache
from support.likes import headers, modules
from support.machines.engine import Engine, debian_base
from support.machines.kernels import Kernel
from support.samples import aptrepo, rpmrepo, runfile, tinydriver, ubuntuarchive
from support.samples.aptrepo import SigningKey, signing_key
from support.samples.rpmrepo import Rpm

STANDS_IN = "This package stands in for the real one in the tests of driverforge.\n"
_UNWANTED = ("doc", "man", "locale", "lintian", "bug", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """`folder` has `hosts/HOST/…`, what the system's servers have; `base/`, the base image's context; and
    `keyring.gpg`, who signed it all. `suite` is Debian's that the base image is made of. `anchors` is where a
    container has a site's certificates: where the system's own tool finds them, if Debian has that tool.
    """

    os: str
    suite: str
    folder: Path
    anchors: str

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"

    @property
    def keyring(self) -> Path:
        return self.folder / "keyring.gpg"

    def base(self, engine: Engine) -> str:
        """Build the base image, unless the engine has it; returns its name."""
        name = f"driverforge-test/{self.os}-like-on-debian:{self.folder.name}"
        debian = debian_base(engine, self.suite)
        words = ("buildx", "build", "--quiet", "--load", "--provenance=false", "--network", engine.network)
        engine.docker(*words, "--build-arg", f"DEBIAN={debian}", "--tag", name, self.folder / "base")
        return name


def likeness(
    os: str,
    *,
    suite: str,
    kernel: Kernel,
    programs: tuple[str, ...],
    anchors: str = "/etc",
    make: Callable[[Path, Kernel, SigningKey], None],
) -> Likeness:
    """A cached likeness; `make` fills its folder. `programs` are the packages of Debian's that go into it."""
    archive = aptfetch.archive()
    code = [inspect.getfile(one) for one in (likeness, make, *_MADE_WITH)]
    inputs = {
        "os": os,
        "kernel": f"{kernel.release} {kernel.version}",
        "programs": [str(archive.newest(name, suite=suite)) for name in programs],
        "made with": cache.digest(*map(Path, code), tinydriver.MODULES),
    }

    def fill(folder: Path) -> None:
        # rpm of RHEL 8 knows no other kind of key that gpg makes today
        with signing_key(folder / "key", algorithm="rsa2048") as key:
            shutil.copy(key.keyring, folder / "keyring.gpg")
            (folder / "base").mkdir()
            shutil.copy(key.armored, folder / "base/key.asc")
            make(folder, kernel, key)

    return Likeness(os=os, suite=suite, folder=cache.cached("likes", inputs, fill), anchors=anchors)


_MADE_WITH = (headers, modules, aptrepo, rpmrepo, runfile, tinydriver, ubuntuarchive)


def debians(folder: Path, *names: str, suite: str) -> Path:
    """A folder with the files of Debian's packages, documentation left out."""
    archive = aptfetch.archive()
    archive.unpack([archive.newest(name, suite=suite) for name in names], folder)
    for name in _UNWANTED:
        shutil.rmtree(folder / "usr/share" / name, ignore_errors=True)
    # where the base has links to them below usr
    for name in ("bin", "sbin", "lib", "lib64"):
        if (folder / name).is_dir():
            shutil.copytree(folder / name, folder / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(folder / name)
    return folder


def thin(name: str, version: str, release: str, **more: Any) -> Rpm:
    """An RPM package without programs, which says that it stands in."""
    said = {f"/usr/share/doc/{name}/stand-in": STANDS_IN, **more.pop("files", {})}
    return Rpm(name=name, version=version, release=release, arch="x86_64", files=said, **more)


def fabric(version: str) -> list[Rpm]:
    """What NVIDIA has for nodes with NVSwitches beside a driver of 580 or newer."""
    exact = ("nvidia-fabricmanager", "nvidia-imex", "libnvidia-nscq", "libnvsdm")
    return [*(thin(name, version, "1") for name in exact), thin("nvlsm", "2025.10.12", "1")]


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
