"""Payload `runfile` on the Debian base, built for real from miniatures of NVIDIA's two kinds of archives.

A test server with NVIDIA's paths stands in for NVIDIA's hosts; the lock names those, and `--mirror nvidia=`
leads to the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock, LockedArchive, LockedPackage, Origin
from driverforge_core.image import ImageFacts
from support.machines.builderbench import BuilderBench, real_lock
from support.machines.engine import Engine
from support.samples.aptrepo import Deb, Served, build_deb, served
from support.samples.nvidiasite import publish_common, publish_redistributable, sha256
from support.samples.runfile import write_runfile

VERSION = "580.178.04"
CELL = f"debian12-amd64-{VERSION}-jit"
MATRIX = """\
extends: builtin
keep: {systems: [debian12], branches: ["580"]}
"""


@pytest.fixture(scope="module")
def nvidia(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nvidia")


@pytest.fixture(scope="module")
def archives(nvidia: Path) -> Iterator[tuple[Served, dict[str, LockedArchive]]]:
    """The server, and pins of both archives as `driverforge lock` makes them."""
    folder = nvidia
    made = {
        "runfile": (publish_common(folder, VERSION), "https://download.nvidia.com"),
        "redistributable": (
            publish_redistributable(folder, VERSION),
            "https://developer.download.nvidia.com",
        ),
    }
    pins = {
        kind: LockedArchive(
            version=VERSION,
            arch="amd64",
            url=f"{host}/{path.relative_to(folder).as_posix()}",
            sha256=sha256(path),
            size=path.stat().st_size,
            origin=Origin.MANIFEST,
            source="a test",
        )
        for kind, (path, host) in made.items()
    }
    with served(folder) as running:
        yield running, pins


@pytest.fixture(scope="module")
def lock() -> Lock:
    """The tools and tool chain of today's Debian 12; a runfile's user space is in the runfile."""
    target = real_lock().targets["debian12-amd64"]
    roles = next(iter(target.drivers.values()))
    return Lock().with_targets(
        [replace(target, drivers={VERSION: {role: roles[role] for role in ("tools", "toolchain")}})]
    )


@pytest.fixture(scope="module")
def fabric(archives: tuple[Served, dict[str, LockedArchive]], nvidia: Path) -> LockedPackage:
    """A fabric manager in miniature, in NVIDIA's repository."""
    path = nvidia / f"compute/cuda/repos/debian12/x86_64/nvidia-fabricmanager_{VERSION}-1_amd64.deb"
    files = {"usr/bin/nv-fabricmanager": "#!/bin/sh\necho a fixture\n"}
    build_deb(Deb(name="nvidia-fabricmanager", version=f"{VERSION}-1", depends="libc6", files=files), path)
    return LockedPackage(
        name="nvidia-fabricmanager",
        version=f"{VERSION}-1",
        arch="amd64",
        path=path.name,
        sha256=sha256(path),
        size=path.stat().st_size,
        suite="cuda-debian12",
    )


def bench(engine: Engine, bookworm: str, folder: Path, lock: Lock, pin: LockedArchive) -> BuilderBench:
    (folder / "matrix.yaml").write_text(MATRIX)
    (folder / "lock.json").write_text(dump_lock(lock.with_archives([pin])))
    return BuilderBench(
        engine=engine, base=bookworm, folder=folder, lock=folder / "lock.json", matrix=folder / "matrix.yaml"
    )


def build(made: BuilderBench, server: Served, *more: str, check: bool = True) -> tuple[int, dict[str, Any]]:
    words = ("build", "--select", CELL, "--network", "host", "--mirror", f"nvidia={server.url}", "--json")
    done = made.driverforge(*words, *more, check=check)
    (cell,) = json.loads(done.stdout)["cells"]
    return done.returncode, cell


@pytest.mark.parametrize(
    "kind", ["runfile", pytest.param("redistributable", marks=pytest.mark.full(reason="one more image"))]
)
def test_userspace_sources_and_firmware_come_out_of_the_archive(
    engine: Engine,
    bookworm: str,
    tmp_path: Path,
    lock: Lock,
    archives: tuple[Served, dict[str, LockedArchive]],
    kind: str,
) -> None:
    server, pins = archives
    made = bench(engine, bookworm, tmp_path, lock, pins[kind])
    _, cell = build(made, server)
    assert cell["result"] == "built"
    reference = cell["reference"]
    arguments = made.in_image(reference, "cat /usr/share/nvidia/installer-arguments").split()
    assert {"--silent", "--no-kernel-module", "--no-nouveau-check", "--no-rpms", "--no-backup"} <= set(
        arguments
    )
    assert ("--no-install-compat32-libs" in arguments) == (kind == "redistributable")
    assert "a fixture" in made.in_image(reference, "nvidia-smi")
    assert made.in_image(reference, f"ls /usr/src/nvidia-{VERSION}").split() == ["kernel", "kernel-open"]
    assert made.in_image(reference, f"find /usr/src/nvidia-{VERSION} ! -user root") == ""
    assert made.in_image(reference, f"ls /opt/driverforge/firmware/nvidia/{VERSION}").split() == [
        "gsp_tu10x.bin"
    ]
    facts = ImageFacts.from_json(made.in_image(reference, "cat /opt/driverforge/image.json"))
    assert (facts.payload, facts.variant) == ("runfile", "jit")
    left = made.in_image(
        reference, "ls -A /tmp; ls /var/log/nvidia-installer.log /driver.run 2>/dev/null || true"
    )
    assert left == ""
    made.forget(reference)


@pytest.mark.full(reason="builds one more image")
def test_the_fabric_manager_comes_from_nvidias_own_repository(
    engine: Engine,
    bookworm: str,
    tmp_path: Path,
    lock: Lock,
    archives: tuple[Served, dict[str, LockedArchive]],
    fabric: LockedPackage,
) -> None:
    """BuildKit gets it: the base image knows no such repository, and has no authorities for its address."""
    server, pins = archives
    (target,) = lock.targets.values()
    drivers = {VERSION: {**target.drivers[VERSION], "fabric": (fabric,)}}
    made = bench(
        engine, bookworm, tmp_path, Lock().with_targets([replace(target, drivers=drivers)]), pins["runfile"]
    )
    _, cell = build(made, server)
    assert cell["result"] == "built"
    assert made.in_image(cell["reference"], "sh /usr/bin/nv-fabricmanager").strip() == "a fixture"
    made.forget(cell["reference"])


def test_an_archive_on_disk_takes_the_place_of_the_download(
    engine: Engine,
    bookworm: str,
    tmp_path: Path,
    lock: Lock,
    archives: tuple[Served, dict[str, LockedArchive]],
) -> None:
    server, pins = archives
    # another file than in the other tests, which the engine has kept
    write_runfile(tmp_path / "mine.run", VERSION)
    packed = (tmp_path / "mine.run").read_bytes().replace(b"\x1f\x8b\x08\0\0", b"\x1f\x8b\x08\0\1", 1)
    (tmp_path / "mine.run").write_bytes(packed)
    pin = replace(pins["runfile"], sha256=sha256(tmp_path / "mine.run"))
    made = bench(engine, bookworm, tmp_path, lock, pin)
    asked = len(server.requests)
    _, cell = build(made, server, "--archive", str(tmp_path / "mine.run"))
    assert cell["result"] == "built"
    assert server.requests[asked:] == []
    assert "a fixture" in made.in_image(cell["reference"], "nvidia-smi")
    made.forget(cell["reference"])


def test_an_archive_that_is_not_the_pinned_one_is_refused(
    engine: Engine,
    bookworm: str,
    tmp_path: Path,
    lock: Lock,
    archives: tuple[Served, dict[str, LockedArchive]],
) -> None:
    server, pins = archives
    made = bench(engine, bookworm, tmp_path, lock, replace(pins["runfile"], sha256="1" * 64))
    status, cell = build(made, server, check=False)
    assert status == 1
    assert "digest mismatch" in "\n".join(cell["error"]["details"])
