"""Benchmarks of images and of compilation in their smallest form, with a driver in miniature."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.benchrun import smallest
from support.process import missing

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "make", "gcc-12")), reason="needs Debian's packages, make and gcc"
    ),
]


def test_the_smallest_compilation_is_measured(tmp_path: Path) -> None:
    found = {measure["what"] for measure in smallest("compile", tmp_path)["measures"]}
    assert found == {
        "empty cache",
        "same kernel",
        "second kernel of the class",
        "next kernel of the series",
    }


@pytest.mark.full(reason="builds images for two minutes")
@pytest.mark.skipif(os.geteuid() != 0, reason="an engine needs root")
@pytest.mark.usefixtures("engine")  # which the benchmarks join
def test_the_smallest_images_are_measured(tmp_path: Path) -> None:
    """Both in one folder: what the first built, the second has."""
    layers = smallest("layer", tmp_path)
    assert [measure["what"] for measure in layers["measures"]] == [
        "one more kernel, compressed",
        "one more kernel, uncompressed",
    ]
    built = smallest("build", tmp_path)
    assert [measure["what"] for measure in built["measures"]] == ["against make", "against dkms"] * 2
