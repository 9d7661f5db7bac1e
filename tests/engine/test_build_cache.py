"""Layers in a registry: what one builder made, another one takes from there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_build.render.bake import LayerCache
from support.machines.dockerregistry import registry as serve
from support.machines.engine import Engine, start_own
from support.skipping import provided

IMAGE = "localhost/driverforge/cached:1"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with provided(lambda: serve(tmp_path / "registry")) as address:
        yield address


@pytest.fixture
def another() -> Iterator[Engine]:
    """A second builder, which has never built anything; the path of a socket has to be short."""
    with tempfile.TemporaryDirectory(prefix="cache-", dir="/var/tmp", ignore_cleanup_errors=True) as home:
        found = provided(lambda: start_own(Path(home)))
        yield found
        found.stop()


def test_a_shared_stage_comes_from_the_registry(
    engine: Engine, another: Engine, bookworm: str, registry: str, tmp_path: Path
) -> None:
    """The stage is a target of its own that the image's stage is linked to, as in our bake files."""
    # the very image: one that is imported again has a date of its own, and BuildKit takes it for another base
    engine.docker("image", "save", "--output", tmp_path / "base.tar", bookworm)
    another.docker("image", "load", "--input", tmp_path / "base.tar")
    folder = tmp_path / "image"
    folder.mkdir()
    # no two builds have the same number
    made = f"FROM {bookworm} AS userspace\nRUN cat /proc/sys/kernel/random/uuid >/made\n"
    (folder / "Dockerfile").write_text(f"{made}FROM userspace\nCOPY own /own\n")
    (folder / "own").write_text("modules")

    def build(builder: Engine, cache: LayerCache) -> str:
        """Build the image; returns the digest of the layer that the shared stage made."""
        shared = {"context": str(folder), "target": "userspace", "network": builder.network}
        image = {
            "context": str(folder),
            "contexts": {"userspace": "target:shared"},
            "tags": [IMAGE],
            "network": builder.network,
        }
        file = tmp_path / "docker-bake.json"
        file.write_text(
            json.dumps({"target": {"shared": {**shared, **cache.of_stage("shared")}, "image": image}})
        )
        allow = ["--allow=network.host"] if builder.network == "host" else []
        builder.docker(
            "buildx", "bake", "--file", file, "--load", f"--allow=fs.read={tmp_path}", *allow, "image"
        )
        layers = json.loads(builder.docker("image", "inspect", IMAGE).stdout)[0]["RootFS"]["Layers"]
        builder.docker("image", "rm", "--force", IMAGE)
        return str(layers[-2])

    kept = f"{registry}/site/cache"
    first = build(engine, LayerCache(written=kept))
    assert build(another, LayerCache(read=(kept,))) == first
