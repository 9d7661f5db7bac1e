"""The guests' first root, read back with another program than the one that wrote it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from driverforge_build.verify.guest import CpioArchive
from support.process import missing

pytestmark = pytest.mark.skipif(bool(missing("busybox")), reason="busybox reads the archive here")


def _unpack(archive: CpioArchive, target: Path) -> None:
    archive.write(target / "initrd")
    (target / "root").mkdir()
    with (target / "initrd").open("rb") as stream:
        subprocess.run(
            ["busybox", "cpio", "-idm"], cwd=target / "root", stdin=stream, check=True, capture_output=True
        )


def test_files_folders_links_and_modes_come_back(tmp_path: Path) -> None:
    archive = CpioArchive()
    archive.file("init", b"#!/bin/sh\n", mode=0o755)
    archive.file("lib/modules/6.1.0/kernel/a.ko", b"\x7fELF" * 1000)
    archive.file("empty", b"")
    archive.link("sbin/modprobe", "/bin/kmod")
    archive.directory("proc")
    archive.file("init", b"#!/bin/sh\nexec true\n", mode=0o755)  # a later one wins
    _unpack(archive, tmp_path)
    root = tmp_path / "root"
    assert (root / "init").read_text() == "#!/bin/sh\nexec true\n"
    assert (root / "init").stat().st_mode & 0o777 == 0o755
    assert (root / "lib/modules/6.1.0/kernel/a.ko").read_bytes() == b"\x7fELF" * 1000
    assert (root / "empty").read_bytes() == b""
    assert (root / "sbin/modprobe").readlink() == Path("/bin/kmod")
    assert (root / "proc").is_dir()
