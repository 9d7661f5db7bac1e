"""Helm takes the chart that `driverforge mirror` has carried out of the mirror."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.process import missing, run
from support.samples.chartsite import ChartSite, chart_site, write_chart
from support.samples.clusternodes import node, write_nodes
from support.skipping import provided
from support.upstream import helm as helm_program

pytestmark = pytest.mark.timeout(3600)


def test_helm_pulls_the_chart_of_the_mirror(tmp_path: Path) -> None:
    helm = provided(helm_program.program)
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    write_nodes(tmp_path, node("gpu-0"))
    chart = write_chart(tmp_path)
    with chart_site(tmp_path, "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04") as (vendor, mirror):
        site = ChartSite(folder=tmp_path, vendor=vendor, mirror=mirror)
        assert site.lock(chart=str(chart)) == 0
        assert site.call("copy", "--to", mirror, *site.registries) == 0
        address = f"oci://{mirror.removeprefix('http://')}/charts/gpu-operator"
        into = tmp_path / "pulled"
        into.mkdir()
        home = {"HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"}
        words = ("pull", address, "--version", "v26.7.0", "--plain-http", "--destination", into)
        run(helm, *words, env=home)
    assert (into / chart.name).read_bytes() == chart.read_bytes()
