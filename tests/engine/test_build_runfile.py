"""Payload `runfile` on the Debian base, built for real from an archive of the same structure that a test
server offers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_core.image import ImageFacts
from support.machines.builderbench import BuilderBench, real_lock
from support.machines.engine import Engine
from support.samples.aptrepo import Served, served
from support.samples.runfile import write_runfile

VERSION = "580.178.04"
CELL = f"debian12-amd64-{VERSION}-jit"
MATRIX = """\
extends: builtin
keep: {{systems: [debian12], branches: ["580"]}}
systems:
  - id: debian12
    drivers:
      - id: "580"
        url: "{url}/NVIDIA-Linux-{{machine}}-{{version}}.run"
        sha256: {{amd64: "{sha256}"}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("runfile")
    write_runfile(folder / f"NVIDIA-Linux-x86_64-{VERSION}.run", VERSION)
    with served(folder) as running:
        yield running, folder / f"NVIDIA-Linux-x86_64-{VERSION}.run"


@pytest.fixture(scope="module")
def lock() -> Lock:
    """The tools and tool chain of today's Debian 12; a runfile's user space is in the runfile."""
    target = real_lock().targets["debian12-amd64"]
    roles = next(iter(target.drivers.values()))
    return Lock().with_targets(
        [replace(target, drivers={VERSION: {role: roles[role] for role in ("tools", "toolchain")}})]
    )


def bench(
    engine: Engine, bookworm: str, folder: Path, lock: Lock, server: tuple[Served, Path], *, sha256: str = ""
) -> BuilderBench:
    running, archive = server
    digest = sha256 or hashlib.sha256(archive.read_bytes()).hexdigest()
    (folder / "matrix.yaml").write_text(MATRIX.format(url=running.url, sha256=digest))
    (folder / "lock.json").write_text(dump_lock(lock))
    return BuilderBench(
        engine=engine, base=bookworm, folder=folder, lock=folder / "lock.json", matrix=folder / "matrix.yaml"
    )


def test_userspace_sources_and_firmware_come_out_of_the_archive(
    engine: Engine, bookworm: str, tmp_path: Path, lock: Lock, server: tuple[Served, Path]
) -> None:
    made = bench(engine, bookworm, tmp_path, lock, server)
    (cell,) = json.loads(made.driverforge("build", "--select", CELL, "--network", "host", "--json").stdout)[
        "cells"
    ]
    assert cell["result"] == "built"
    reference = cell["reference"]
    arguments = made.in_image(reference, "cat /usr/share/nvidia/installer-arguments").split()
    assert {"--silent", "--no-kernel-module", "--no-nouveau-check", "--no-rpms", "--no-backup"} <= set(
        arguments
    )
    assert "a fixture" in made.in_image(reference, "nvidia-smi")
    assert made.in_image(reference, f"ls /usr/src/nvidia-{VERSION}").split() == ["kernel", "kernel-open"]
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


def test_an_archive_that_is_not_the_pinned_one_is_refused(
    engine: Engine, bookworm: str, tmp_path: Path, lock: Lock, server: tuple[Served, Path]
) -> None:
    made = bench(engine, bookworm, tmp_path, lock, server, sha256="1" * 64)
    done = made.driverforge("build", "--select", CELL, "--network", "host", "--json", check=False)
    assert done.returncode == 1
    (cell,) = json.loads(done.stdout)["cells"]
    assert "digest mismatch" in "\n".join(cell["error"]["details"])
