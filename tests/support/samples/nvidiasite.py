"""A folder laid out as NVIDIA's download hosts, for a server that stands in for all of them.

The paths are those of download.nvidia.com (XFree86), us.download.nvidia.com (tesla),
developer.download.nvidia.com (compute) and docs.nvidia.com (datacenter), which have nothing in common. The
archives are miniatures; checksum files and manifests are true of them, in the form that NVIDIA writes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.process import require, run
from support.samples.aptrepo import Deb, SigningKey, build_deb
from support.samples.runfile import write_redistributable, write_runfile

REDIST = "compute/nvidia-driver/redist"
RELEASES = "datacenter/tesla/drivers/releases.json"


def common(version: str, machine: str = "x86_64") -> str:
    """The path of a common runfile."""
    return f"XFree86/Linux-{machine}/{version}/NVIDIA-Linux-{machine}-{version}.run"


def data_centre(version: str, machine: str = "x86_64") -> str:
    return f"tesla/{version}/NVIDIA-Linux-{machine}-{version}.run"


def redistributable(version: str, machine: str = "x86_64") -> str:
    platform = f"linux-{machine}"
    return f"{REDIST}/nvidia_driver/{platform}/nvidia_driver-{platform}-{version}-archive.tar.xz"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def publish_common(root: Path, version: str) -> Path:
    """A common runfile with its checksum file beside it, and the same file for data centres without one."""
    path = root / common(version)
    write_runfile(path, version)
    path.with_name(f"{path.name}.sha256sum").write_text(f"{sha256(path)}  {path.name}\n")
    write_runfile(root / data_centre(version), version)
    return path


def publish_redistributable(root: Path, version: str, machine: str = "x86_64") -> Path:
    """A redistributable archive, and the manifest of its version."""
    path = root / redistributable(version, machine)
    write_redistributable(path, version, machine)
    entry = {
        "relative_path": path.relative_to(root / REDIST).as_posix(),
        "sha256": sha256(path),
        "md5": "0" * 32,
        "size": str(path.stat().st_size),
    }
    manifest = {
        "release_date": "2026-09-08",
        "release_label": version,
        "release_product": "nvidia-driver",
        "nvidia_driver": {"name": "NVIDIA Linux Driver", "version": version, f"linux-{machine}": entry},
    }
    (root / REDIST / f"redistrib_{version}.json").write_text(json.dumps(manifest))
    return path


def publish_packages(root: Path, key: SigningKey, debs: Iterable[Deb], distro: str = "debian12") -> Path:
    """NVIDIA's repository of a distribution for x86_64."""
    return publish_flat(root / "compute/cuda/repos" / distro / "x86_64", key, debs)


def publish_flat(folder: Path, key: SigningKey, debs: Iterable[Deb]) -> Path:
    """A flat repository, as NVIDIA's are, made with apt-ftparchive and signed."""
    require("apt-ftparchive")
    folder.mkdir(parents=True, exist_ok=True)
    for deb in debs:
        build_deb(deb, folder / f"{deb.name}_{deb.version}_{deb.arch}.deb")
    index = run("apt-ftparchive", "packages", ".", cwd=folder).stdout
    (folder / "Packages").write_text(index)
    (folder / "Packages.gz").write_bytes(gzip.compress(index.encode(), mtime=0))
    options = [f"--option=APT::FTPArchive::Release::{name}=NVIDIA" for name in ("Origin", "Label")]
    told = run("apt-ftparchive", *options, "release", ".", cwd=folder).stdout
    (folder / "InRelease").write_text(key.clearsign(told))
    return folder


def publish_releases(root: Path, branches: Mapping[str, tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """The list of releases. `branches` maps '580' to its type and its (version, date) pairs."""
    document: dict[str, Any] = {
        branch: {
            "type": kind,
            "driver_info": [
                {
                    "release_version": version,
                    "release_date": date,
                    "release_notes": f"https://docs.nvidia.com/datacenter/tesla/{version}/",
                    "architectures": ["x86_64", "aarch64"],
                    "runfile_url": {"x86_64": f"https://us.download.nvidia.com/{data_centre(version)}"},
                }
                for version, date in versions
            ],
        }
        for branch, (kind, versions) in branches.items()
    }
    path = root / RELEASES
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
