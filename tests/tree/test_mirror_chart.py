"""The chart itself in a mirror's list: from a file, a chart repository, a registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from driverforge_build.app.mirror import MirrorInputs, mirror_lock
from driverforge_core.errors import TemporaryFailure
from driverforge_mirror.contents.chartarchive import ChartArchive
from driverforge_oci.reference import Reference
from support.jsonschemas import check_document
from support.process import missing
from support.samples.aptrepo import served
from support.samples.chartsite import HOSTS, ChartSite, chart_site, write_chart
from support.samples.clusternodes import node, write_nodes
from support.samples.vendorregistry import client

CHART = "localhost/charts/gpu-operator:v26.7.0"
HELM = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ChartSite]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    write_nodes(tmp_path, node("gpu-0"))
    with chart_site(tmp_path, "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04") as (vendor, mirror):
        yield ChartSite(folder=tmp_path, vendor=vendor, mirror=mirror)


def held_chart(place: Reference) -> bytes:
    """The archive that a registry has."""
    manifest = client().get_manifest(place)
    assert manifest.config.media_type == "application/vnd.cncf.helm.config.v1+json"
    (layer,) = manifest.layers
    assert layer.media_type == HELM
    content = io.BytesIO()
    client().get_blob(place, layer.digest, content)
    return content.getvalue()


def test_a_file_comes_to_the_mirror_and_is_a_source_there(site: ChartSite) -> None:
    path = write_chart(site.folder)
    assert site.lock(chart=str(path)) == 0
    check_document("mirror-lock", site.document())
    assert site.save() == 0
    data = path.read_bytes()
    path.unlink()
    assert site.load() == 0
    assert site.call("verify", "--deep", "--to", site.mirror) == 0
    address = f"{site.mirror.removeprefix('http://')}/charts/gpu-operator:v26.7.0"
    assert held_chart(Reference.parse(address)) == data
    # no values and no runtime speak of it
    assert site.call("rewrite", "--to", site.mirror, "--out", str(site.folder / "out")) == 0
    assert not (site.folder / "out/certs.d/localhost").exists()
    # the mirror's own chart is as good a source: an image like any other
    assert site.lock(chart=f"oci://{address}") == 0
    document = site.document()
    assert document["chart"]["sha256"] == hashlib.sha256(data).hexdigest()
    (chart,) = [one for one in document["images"] if one["image"] == address]
    assert chart["reasons"][0]["text"] == f"the chart itself, of oci://{address}"
    assert chart["digest"] == client().head_manifest(Reference.parse(address)).digest
    # its tag moved after it was read
    was = gzip.compress(gzip.decompress(data), mtime=1)
    archive = ChartArchive(data=was, source=f"oci://{address}", image=address)
    given = MirrorInputs(chart=f"oci://{address}", archive=archive, nodes=site.folder / "nodes.json")
    with pytest.raises(TemporaryFailure, match="has become another chart"):
        mirror_lock(given, client(), {host: f"{site.vendor}/{host}" for host in HOSTS})


def test_a_chart_repository_gives_it_by_the_digest_of_its_index(
    site: ChartSite, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = site.folder / "shop"
    (shop / "charts").mkdir(parents=True)
    path = write_chart(shop / "charts")
    entry = {
        "name": "gpu-operator",
        "version": "v26.7.0",
        "urls": [f"charts/{path.name}"],
        "digest": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    (shop / "index.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v1", "entries": {"gpu-operator": [entry]}})
    )
    with served(shop) as web:
        assert site.lock("--chart-repository", web.url) == 0
        (chart,) = [one for one in site.document()["images"] if one["image"] == CHART]
        assert f"{web.url}/charts/{path.name}" in chart["addresses"].values()
        assert site.save() == 0
        assert site.lock("--chart-repository", web.url, chart="v25.3.0") == 65
        assert "it has: gpu-operator-v26.7.0" in capsys.readouterr().err
        # somebody replaced it behind its index
        path.write_bytes(path.read_bytes() + b"\0")
        # the server of this test goes by the whole second when it is asked for what is newer
        os.utime(path, (later := path.stat().st_mtime + 2, later))
        assert site.lock("--chart-repository", web.url) == 69
        assert f"is not what {web.url}/index.yaml says" in capsys.readouterr().err
    assert json.loads(Path(f"{site.archive}.list.json").read_text())["lock"]["chart"]["version"] == "v26.7.0"
