"""NVIDIA's real open kernel modules, compiled in containers.

550 for a 6.12 kernel on Debian 13; with --full 535 for a 6.1 one on Debian 12, too.
"""

from __future__ import annotations

import pytest

from driverforge_core.modinfo import read_modinfo
from support.machines.engine import Engine
from support.skipping import provided
from support.upstream import realimage
from support.upstream.nvidia_modules import MODULES
from support.upstream.realimage import RealImage

pytestmark = pytest.mark.timeout(2400)  # two processors compile for minutes


@pytest.fixture(scope="module", params=realimage.TARGETS, ids=str)
def image(engine: Engine, request: pytest.FixtureRequest) -> RealImage:
    return provided(lambda: realimage.build(engine, request.param))


def test_all_modules_are_made_for_that_kernel_and_driver(image: RealImage) -> None:
    assert {file.name for file in image.modules.glob("*.ko")} == set(MODULES)
    for name in ("nvidia.ko", "nvidia-uvm.ko", "nvidia-modeset.ko"):
        facts = read_modinfo((image.modules / name).read_bytes())
        assert facts["vermagic"][0].split()[0] == image.kernel
    assert read_modinfo((image.modules / "nvidia.ko").read_bytes())["version"] == [image.driver]


def test_the_kernels_layer_is_small_against_the_image(image: RealImage) -> None:
    """The modules come last, in a layer of their own; upstream's precompiled image holds the whole driver
    again for each kernel.
    """
    layers = image.report["layers"]
    assert layers[-1]["size"] < image.report["size"] / 5
    assert "/opt" in layers[-1]["created_by"]
