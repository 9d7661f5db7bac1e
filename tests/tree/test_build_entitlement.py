"""`driverforge build --entitlement`: what is missing is told before anything is built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import LockedArchive, Origin
from driverforge_build.matrix import load_matrix
from support.samples.synthetic import synthetic_lock

CELL = "rhel9-amd64-580.178.04-5.14.0-687.5.1.el9_8.x86_64"
APPSTREAM = "rhel-9-for-x86_64-appstream-rpms"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock whose kernel headers are in a subscription's repository."""
    whole = synthetic_lock(load_matrix())
    target = whole.targets["rhel9-amd64"]
    kernels = {
        name: replace(kernel, headers=tuple(replace(one, suite=APPSTREAM) for one in kernel.headers))
        for name, kernel in target.kernels.items()
    }
    archive = LockedArchive(
        version="580.178.04",
        arch="amd64",
        url="https://files.site/driver.run",
        sha256="ab" * 32,
        size=7,
        origin=Origin.CHECKSUM_FILE,
        source="beside it",
    )
    path = tmp_path / "driverforge.lock.json"
    targets = {"rhel9-amd64": replace(target, kernels=kernels)}
    path.write_text(dump_lock(replace(whole, targets=targets).with_archives([archive])))
    return path


def build(lock: Path, *words: str | Path) -> int:
    given = ["--lock", lock, "--select", CELL, "--engine", "nop", "--cache-dir", lock.parent / "cache"]
    return cli.run(["build", *map(str, (*given, *words))])


def test_what_nothing_opens_is_told_and_what_is_given_is_passed_by_file(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "entitlement"
    folder.mkdir()
    (folder / "SCCcredentials").write_text("username=x\npassword=y\n")
    assert build(lock, "--entitlement", folder) == 0
    told = f"rhel9-amd64: its build downloads from {APPSTREAM}: run it on a registered host, or give what"
    assert told in capsys.readouterr().err
    log = tmp_path / f"cache/logs/{CELL}.log"
    assert "secrets" not in log.read_text()
    for name in ("1.pem", "1-key.pem"):
        (folder / name).write_text("secret words\n")
    assert build(lock, "--entitlement", folder) == 0
    assert "subscription" not in capsys.readouterr().err
    assert f"id=subscription-key,src={folder}/1-key.pem" in log.read_text()
    assert "secret words" not in log.read_text()
