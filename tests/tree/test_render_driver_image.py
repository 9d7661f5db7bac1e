"""The driver out of a driver image: the script that ships, against trees with the files of such images.

`unpack-archive` is a test double here, which notes that it was called; tests/engine has the real one.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_core.errors import CommandFailed
from support.process import run

VERSION = "580.178.04"
NAME = f"NVIDIA-Linux-{platform.machine()}-{VERSION}.run"
SOURCES = f"/usr/src/nvidia-{VERSION}"
DOUBLE = """#!/bin/sh
echo "$1 $2" >>{root}/called
for folder in kernel kernel-open; do
	mkdir -p {root}{sources}/$folder && : >{root}{sources}/$folder/conftest.sh
done
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "root"
    found.mkdir()
    return found


def put(root: Path, *files: str, text: str = "") -> None:
    for name in files:
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def ours(root: Path, version: str = VERSION) -> None:
    put(root, "/opt/driverforge/image.json", text=json.dumps({"driver": version}))


def take(root: Path, action: str) -> str:
    """What the double of `unpack-archive` was called with."""
    scripts = root.parent / "scripts"
    scripts.mkdir()
    shutil.copy(resources.templates() / "scripts/take-driver", scripts)
    (scripts / "unpack-archive").write_text(DOUBLE.format(root=root, sources=SOURCES))
    (scripts / "unpack-archive").chmod(0o755)
    folders = (f"{SOURCES}/kernel-open", f"{SOURCES}/kernel") if action == "sources" else ()
    environment = {"DRIVERFORGE_ROOT": str(root)}
    run("sh", scripts / "take-driver", action, VERSION, sys.executable, *folders, env=environment)
    called = root / "called"
    return called.read_text() if called.exists() else ""


def refusal(root: Path, action: str) -> str:
    with pytest.raises(CommandFailed) as caught:
        take(root, action)
    return "\n".join(caught.value.details)


@pytest.mark.parametrize("action", ["userspace", "sources"])
def test_the_archive_of_an_image_of_nvidias_is_unpacked(root: Path, action: str) -> None:
    put(root, f"/drivers/{NAME}")
    assert take(root, action) == f"{action} {root}/drivers/{NAME}\n"


def test_an_image_of_ours_has_its_user_space_and_gets_new_programs(root: Path) -> None:
    ours(root)
    put(
        root,
        "/opt/driverforge/lib/driverforge_driver/gone.py",
        "/opt/driverforge/firmware/a",
        f"/drivers/{NAME}",
    )
    assert take(root, "userspace") == ""
    assert not (root / "opt/driverforge/lib").exists()
    assert (root / "opt/driverforge/firmware/a").exists()


def test_sources_that_are_there_are_left_alone(root: Path) -> None:
    put(root, f"/drivers/{NAME}", *(f"{SOURCES}/{name}/conftest.sh" for name in ("kernel", "kernel-open")))
    assert take(root, "sources") == ""


def test_half_of_the_sources_gives_way_to_the_archives(root: Path) -> None:
    put(root, f"/drivers/{NAME}", f"{SOURCES}/kernel/conftest.sh", f"{SOURCES}/kernel/old.c")
    assert take(root, "sources").startswith("sources ")
    assert not (root / f"{SOURCES.lstrip('/')}/kernel/old.c").exists()


def test_the_entrypoint_that_would_patch_nvidias_own_is_taken_away(root: Path) -> None:
    put(root, f"/drivers/{NAME}", "/usr/local/bin/ocp_dtk_entrypoint")
    take(root, "userspace")
    assert not (root / "usr/local/bin/ocp_dtk_entrypoint").exists()


@pytest.mark.parametrize("there", ["nothing", "other archive", "ours of another driver", "packages"])
def test_an_image_without_the_driver_says_what_was_looked_at_and_what_is_there(
    root: Path, there: str
) -> None:
    other = NAME.replace(VERSION, "580.65.06")
    if there == "other archive":
        put(root, f"/drivers/{other}")
    elif there == "ours of another driver":
        ours(root, "580.65.06")
    elif there == "packages":
        put(root, "/usr/local/repos/nvidia-utils-580-server.deb")
    told = refusal(root, "userspace")
    assert f"the base image has no driver {VERSION} that an image can be made of" in told
    assert f"looked at: /drivers/{NAME} (NVIDIA's images), /opt/driverforge/image.json (ours)" in told
    assert (
        f"`image:` of the driver's row has to name an image of {VERSION} without a kernel in its tag" in told
    )
    assert (f"there is: /drivers/{other}" in told) == (there == "other archive")
    assert ("there is: /usr/local/repos/nvidia-utils-580-server.deb" in told) == (there == "packages")


def test_an_image_with_finished_modules_alone_names_the_sources_that_it_lacks(root: Path) -> None:
    ours(root)
    put(root, f"{SOURCES}/kernel-open/conftest.sh")
    told = refusal(root, "sources")
    assert f"the base image has no module sources in {SOURCES}/kernel\n" in told
    assert f"looked at: that, /drivers/{NAME}" in told
    assert "or `module_types:` what it has" in told
