"""Small locks for tests of what reads them; nothing can be downloaded with these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from driverforge_build.discover.offered import Package
from driverforge_build.discover.pin import Pins, locked
from driverforge_build.lock.pins import HeaderFact, LockedKernel, LockedPackage, LockedRepository, TargetLock


def package(name: str, version: str = "1-1", suite: str = "bookworm") -> LockedPackage:
    return LockedPackage(
        name=name,
        version=version,
        arch="amd64",
        path=f"pool/{name}.deb",
        sha256="ab" * 32,
        size=7,
        suite=suite,
    )


def pins_by_sha256(packages: Iterable[Package]) -> Pins:
    """Of packages that their index knows by sha256: nothing is asked for them."""
    return {one: locked(one, one.sum.digest) for one in packages}


def kernel(release: str, *headers: LockedPackage) -> LockedKernel:
    return LockedKernel(
        release=release,
        flavour="cloud-amd64",
        compiler="gcc-12",
        headers=headers or (package(f"linux-headers-{release}"),),
        image=package(f"linux-image-{release}"),
    )


def sample_driver() -> dict[str, tuple[LockedPackage, ...]]:
    """All roles that the driver of support.samples.sampledebian asks for."""
    names = {
        "tools": ("kmod",),
        "toolchain": ("make", "gcc-12"),
        "userspace": ("libcuda1", "nvidia-modprobe"),
        "source": ("nvidia-open-kernel-dkms", "nvidia-kernel-dkms"),
        "firmware": ("firmware-nvidia-gsp",),
    }
    return {role: tuple(package(name) for name in packages) for role, packages in names.items()}


def target(*kernels: LockedKernel, **changes: object) -> TargetLock:
    whole = TargetLock(
        os="debian12",
        arch="amd64",
        repositories=(
            LockedRepository(
                suite="bookworm",
                components=("main",),
                date="2026-11-20T12:00:00Z",
                valid_until="",
                signed_by=("F00D",),
                inrelease="cd" * 32,
                indexes={"main/binary-amd64/Packages.xz": "ef" * 32},
            ),
        ),
        drivers={"535.261.03": {"userspace": (package("libcuda1"), package("libc6"))}},
        kernels={one.release: one for one in kernels},
        header_facts={
            "linux-headers-6.1.0-50-common=1-1": {
                "a question": HeaderFact(breaks=None, found="a.h is not there")
            }
        },
        without_headers=("6.1.0-52-cloud-amd64",),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]
