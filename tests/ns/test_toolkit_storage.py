"""A node's disk that is full, and one that is read-only: a small file system in a namespace of its own, with
the kernel's real words.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import driverctl
from driverforge_toolkit.toolkit.artifacts import PROGRAMS
from support.process import Finished, missing, run
from support.samples.toolkitsource import write_source

PROGRAM = "from driverctl.cli import main; main()"
BIG = dict.fromkeys(PROGRAMS, "x" * 300000)
# $1: options of the file system, $2: the install folder, $3: bytes that somebody else has on it
SCRIPT = """
mount -t tmpfs none /run
mount -t tmpfs -o "$1" none "$2"
install="$2" others="$3"; shift 3
"$@" --toolkit-source-root "$SMALL"
before=$(readlink "$install/toolkit")
dd if=/dev/zero of="$install/others" bs="$others" count=1 2>/dev/null
[ -z "$READ_ONLY" ] || mount -o remount,ro "$install"
if "$@" --toolkit-source-root "$LARGE"; then echo "status 0"; else echo "status $?"; fi
[ "$before" = "$(readlink "$install/toolkit")" ] && echo "the link is the same"
"$install/toolkit/nvidia-ctk" && echo "the program runs"
echo releases: $(ls "$install/releases" | wc -l)
"""


def namespaces() -> str:
    """Why there are no user namespaces here, '' where there are."""
    if gone := missing("unshare"):
        return f"not installed: {', '.join(gone)}"
    tried = run(
        "unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt", check=False
    )
    return "" if tried.status == 0 else f"no user namespaces: {tried.stderr.strip()}"


WHY_NOT = namespaces()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def upgrade(folder: Path, *, options: str, others: int, read_only: bool = False) -> Finished:
    """Install a small release, take `others` bytes of the disk, install a larger one."""
    small = write_source(folder / "small", programs=dict.fromkeys(PROGRAMS, "#!/bin/sh\nexit 0\n"))
    large = write_source(folder / "large", version="99.88.78", programs=BIG)
    (folder / "nvidia").mkdir()
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "toolkit",
        "install",
        "--toolkit-install-dir",
        folder / "nvidia",
    ]
    environment = {
        "PYTHONPATH": str(Path(driverctl.__file__).parents[1]),
        "PATH": os.environ["PATH"],
        "SMALL": str(small),
        "LARGE": str(large),
        "READ_ONLY": "1" if read_only else "",
    }
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-ec",
        SCRIPT,
        "sh",
        options,
        folder / "nvidia",
        str(others),
        *command,
    ]
    return run(*words, env=environment)


def survived(ended: Finished, *, status: int) -> str:
    """The error, of which there is one; the release from before must be in force and whole, and nothing of
    the new one left.
    """
    assert ended.stdout.splitlines()[-4:] == [
        f"status {status}",
        "the link is the same",
        "the program runs",
        "releases: 1",
    ], ended.stdout
    assert ended.stderr.count("error: ") == 1
    assert "Traceback" not in ended.stderr
    return ended.stderr[ended.stderr.index("error: ") :]


def test_too_little_space_is_seen_before_anything_is_written(tmp_path: Path) -> None:
    message = survived(upgrade(tmp_path, options="size=4M", others=2_000_000), status=74)
    assert "too little space" in message
    assert "driverctl toolkit gc" in message


def test_a_disk_that_fills_up_on_the_way_gets_its_space_back(tmp_path: Path) -> None:
    # the file system has room in bytes, and too few inodes: no estimate sees that
    message = survived(upgrade(tmp_path, options="size=40M,nr_inodes=32", others=1000), status=74)
    assert "no space left" in message


def test_a_read_only_disk(tmp_path: Path) -> None:
    message = survived(upgrade(tmp_path, options="size=40M", others=1000, read_only=True), status=77)
    assert "Read-only file system" in message
