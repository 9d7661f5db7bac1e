"""The toolkit's DaemonSet as one pod on one node, in images with both halves of this checkout's driverctl.

Where NVIDIA's runtime is not the real one, a test double stands in its place, and says that it is one. It
writes what it was called with to a log on the node, and runs the container with runc.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from driverforge_build.render.library import TOOLKIT_IMAGE, library_files
from driverforge_core.errors import InputError
from support import cache
from support.machines.engine import Engine
from support.samples.toolkitsource import write_source

MANIFEST = Path(__file__).resolve().parents[3] / "docs/kubernetes/toolkit.yaml"
LOG = "/var/log/fake-nvidia-container-runtime.log"
RUNTIMES = ("nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy")

# what starts ours: as dockerfiles/bin renders it
_LAUNCHER = """#!/bin/sh
exec python3 -I -S -c 'import sys; sys.path.insert(0, "/opt/driverforge/lib"); sys.argv[0] = "{name}"
from driverctl.cli import main; main()' "$@"
"""
_DOUBLE = f"""#!/bin/sh
# NOT NVIDIA's nvidia-container-runtime: a test double of driverforge. It changes nothing of a container.
echo "${{0##*/}} $*" >>{LOG}
exec runc "$@"
"""


def doubles(folder: Path) -> Path:
    """A source folder for `driverctl toolkit` with nothing of NVIDIA's.

    The runtimes log and run runc, the other programs say nothing.
    """
    return write_source(folder, programs=dict.fromkeys(RUNTIMES, _DOUBLE))


def image(engine: Engine, base: str, folder: Path, *, reference: str, artifacts: Path) -> Path:
    """A docker archive of the image `reference`: Debian, Python and our packages.

    `artifacts` take the place that NVIDIA's have in the real image.
    """
    # a colon would end a path of docker's --volume
    context = folder / f"{reference.rpartition('/')[2].replace(':', '-')}.context"
    for name, data in library_files(TOOLKIT_IMAGE).items():
        file = context / "lib" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (context / "bin").mkdir()
    for name in ("driverctl", "nvidia-toolkit", "nvidia-validator", "driver-manager"):
        (context / "bin" / name).write_text(_LAUNCHER.format(name=name))
        (context / "bin" / name).chmod(0o755)
    shutil.copytree(artifacts, context / "deb", symlinks=True)
    (context / "Dockerfile").write_text(
        f"FROM {base}\n"
        "RUN apt-get update && apt-get install -y --no-install-recommends python3 && apt-get clean\n"
        "COPY lib /opt/driverforge/lib\nCOPY bin /usr/local/bin\nCOPY deb /artifacts/deb\n"
    )
    archive = context.with_suffix(".tar")
    engine.docker("buildx", "build", "--network", engine.network, "--load", "--tag", reference, context)
    engine.docker("save", "--output", archive, reference)
    engine.docker("image", "rm", "--force", reference)
    return archive


def kept(engine: Engine, base: str, *, reference: str) -> Path:
    """The archive of an image with doubles, from the cache: a node's image store is kept by what is in it."""
    inputs = {
        "library": {
            name: hashlib.sha256(data).hexdigest() for name, data in library_files(TOOLKIT_IMAGE).items()
        },
        "ours": cache.digest(Path(__file__)),
        "base": base,
        "reference": reference,
    }

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="driverforge-toolkit-", dir="/var/tmp") as name:
            work = Path(name)
            made = image(engine, base, work, reference=reference, artifacts=doubles(work / "doubles"))
            shutil.move(made, folder / "image.tar")

    return cache.cached("toolkitimage", inputs, make) / "image.tar"


def daemonset() -> dict[str, Any]:
    """The DaemonSet of the documented manifest."""
    for document in yaml.safe_load_all(MANIFEST.read_text()):
        if document and document["kind"] == "DaemonSet":
            found: dict[str, Any] = document
            return found
    raise InputError(f"{MANIFEST} has no DaemonSet")


def pod(name: str, *, reference: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The pod that the DaemonSet controller would make of its template.

    The image `reference` and these variables are edited in.
    """
    found = daemonset()
    template = found["spec"]["template"]
    spec = template["spec"]
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        container["image"] = reference
        kept = [entry for entry in container.get("env", []) if entry["name"] not in (environment or {})]
        container["env"] = [
            *kept,
            *({"name": key, "value": value} for key, value in (environment or {}).items()),
        ]
    metadata = {
        "name": name,
        "namespace": found["metadata"]["namespace"],
        "labels": template["metadata"]["labels"],
    }
    return {"metadata": metadata, "spec": spec}
