"""Files out of an image that is never run, from a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_build.engine.buildx import Buildx
from driverforge_core.errors import CommandFailed
from support.machines.engine import Engine

NAME = "localhost/driverforge-test/files:1"
SET = "/opt/lib/modules/6.1.0-50-cloud-amd64"


@pytest.fixture
def image(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An image whose second layer replaces a file of the first, as a build on a published image may."""
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)
    for layer in ("first", "second"):
        (tmp_path / layer / "open").mkdir(parents=True)
        (tmp_path / layer / "open/nvidia.ko").write_text(layer)
    (tmp_path / "first/open/nvidia-uvm.ko").write_bytes(bytes(range(256)) * 5000)
    (tmp_path / "Dockerfile").write_text(f"FROM scratch\nCOPY first {SET}\nCOPY second {SET}\n")
    engine.docker("buildx", "build", "--network", engine.network, "--load", "--tag", NAME, tmp_path)
    yield NAME
    engine.docker("image", "rm", "--force", NAME, check=False)


def test_files_are_those_that_a_container_would_see(image: str, engine: Engine) -> None:
    found = Buildx().files(image, SET)
    assert found == {
        "open/nvidia.ko": b"second",
        "open/nvidia-uvm.ko": bytes(range(256)) * 5000,
    }
    left = engine.docker("ps", "--all", "--quiet", "--filter", f"ancestor={image}").stdout
    assert left == "", "no container is left"


def test_a_folder_or_an_image_that_is_not_there(image: str) -> None:
    assert Buildx().files(image, "/opt/lib/modules/7.0") is None
    with pytest.raises(CommandFailed):
        Buildx().files("localhost/driverforge-test/none:1", SET)
