"""The operator image's wheels, as their lock has them: what `hack/operator-wheels ARCH FOLDER` runs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).resolve().parents[2] / "builder/driverforge_build/data/operator-wheels.json"
# of the system whose Python the image has, Debian 12: the oldest C library that wheels of today are made for
TARGET = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
PLATFORMS = {"amd64": "manylinux2014_x86_64", "arm64": "manylinux2014_aarch64"}


def requirements(arch: str) -> str:
    """The lock as pip reads it: with hashes it takes these files and no others."""
    locked = json.loads(LOCK.read_text(encoding="utf-8"))["wheels"][arch]
    rows = [(*file.split("-")[:2], sha256) for file, sha256 in locked.items()]
    return "".join(f"{name}=={version} --hash=sha256:{sha256}\n" for name, version, sha256 in rows)


def download(arch: str, folder: str) -> int:
    """Fill a folder; the status of pip, which has said what failed."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write(requirements(arch))
        listed.flush()
        words = ["--only-binary=:all:", "--no-deps", "--platform", PLATFORMS[arch], *TARGET]
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *words]
        return subprocess.run(
            [*command, "--dest", folder, "--requirement", listed.name], check=False
        ).returncode


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in PLATFORMS:
        sys.exit(f"usage: hack/operator-wheels {'|'.join(PLATFORMS)} FOLDER")
    sys.exit(download(sys.argv[1], sys.argv[2]))
