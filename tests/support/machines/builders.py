"""Programs that build images without a docker engine, compiled from the Go module proxy.

`buildkitd` is in no Debian, and Debian 12's buildah and podman are older than what our Dockerfiles need.
A program of that name that is installed here and new enough is taken first.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driverforge_build.engine.buildah import OLDEST
from support import gobuild
from support.process import require, run, start, stop, until

_BUILDKIT = "github.com/moby/buildkit"
_BUILDAH = "github.com/containers/buildah"
_PODMAN = "github.com/containers/podman/v5"
# signatures and a file system that nobody here has, each with a C library of its own
_TAGS = "-tags=containers_image_openpgp exclude_graphdriver_btrfs"
BUILDKITD = gobuild.Recipe(
    name="buildkitd",
    what="buildkitd 0.25.2",
    requires={_BUILDKIT: "v0.25.2"},
    packages={"buildkitd": f"{_BUILDKIT}/cmd/buildkitd"},
    flags=(*gobuild.QUICK, "-ldflags=-s -w"),
    staging=_BUILDKIT,
)
BUILDAH = gobuild.Recipe(
    name="buildah",
    what="buildah 1.41.5",
    requires={_BUILDAH: "v1.41.5"},
    packages={"buildah": f"{_BUILDAH}/cmd/buildah"},
    flags=(*gobuild.QUICK, "-ldflags=-s -w", _TAGS),
    cgo=True,
    staging=_BUILDAH,
)
PODMAN = gobuild.Recipe(
    name="podman",
    what="podman 5.6.2",
    requires={_PODMAN: "v5.6.2"},
    packages={"podman": f"{_PODMAN}/cmd/podman"},
    flags=(*gobuild.QUICK, "-ldflags=-s -w", _TAGS),
    cgo=True,
    staging=_PODMAN,
)


@contextmanager
def buildkitd() -> Iterator[str]:
    """A BuildKit daemon of our own, as buildx's driver `remote` names it: unix:///….

    Its mounts are in a namespace of its own. Raises Unavailable.
    """
    require("runc", "unshare", "mount")
    program = shutil.which("buildkitd") or gobuild.programs(BUILDKITD) / "buildkitd"
    # a socket's path may have a hundred letters
    with tempfile.TemporaryDirectory(prefix="buildkitd-") as name:
        folder = Path(name)
        address, log = f"unix://{folder}/socket", folder / "log"
        words = [program, "--addr", address, "--root", folder / "root", "--containerd-worker=false"]
        isolated = ["unshare", "--mount", "--propagation", "private"]
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        child = start([*isolated, *words, "--oci-worker-net=host"], log=log, env={"PATH": path})
        try:
            until(lambda: "running server on" in log.read_text(), "buildkitd listens", child=child, log=log)
            yield address
        finally:
            stop(child)


def daemonless(name: str, folder: Path) -> Path:
    """A folder for PATH with a `buildah` or `podman` that keeps its images below `folder`.

    Raises Unavailable.
    """
    require("runc")
    recipe = {"buildah": BUILDAH, "podman": PODMAN}[name]
    program = _installed(name) or gobuild.programs(recipe) / name
    # a machine may not let a process raise its limits, as containers' defaults would have it; programs for
    # networks and for running containers have to be there, and are not used: a build needs neither
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        f'[engine]\nhelper_binaries_dir = ["{folder}/helpers"]\nconmon_path = ["{folder}/helpers/conmon"]\n'
    )
    # who may have signed what is pulled: a machine without the packages of these programs has no such file
    policy = folder / ".config/containers/policy.json"
    policy.parent.mkdir(parents=True)
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n')
    store = f"--storage-driver vfs --root {folder}/store --runroot {folder}/run"
    for place in ("bin", "helpers"):
        (folder / place).mkdir()
    (folder / "helpers/netavark").symlink_to("/bin/false")
    _write_program(folder / "helpers/conmon", "echo conmon version 2.1.10")
    _write_program(
        folder / "bin" / name,
        f"export HOME={folder} CONTAINERS_CONF={folder}/containers.conf BUILDAH_ISOLATION=chroot\n"
        f'exec {program} {store} "$@"',
    )
    return folder / "bin"


def _write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _installed(name: str) -> Path | None:
    found = shutil.which(name)
    if found is None:
        return None
    version = re.search(r"(\d+)\.(\d+)", run(found, "--version").stdout)
    return Path(found) if version and tuple(map(int, version.groups())) >= OLDEST[name] else None
