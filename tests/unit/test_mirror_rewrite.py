"""What `mirror rewrite` writes, put in force: the very settings then ask for the places in the mirror."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

from driverforge_build import resources
from driverforge_core.errors import InputError
from driverforge_mirror.charts.chart import Chart, find_chart
from driverforge_mirror.charts.values import at, leaves, merged
from driverforge_mirror.contents.found import Found
from driverforge_mirror.contents.listtext import lock_document
from driverforge_mirror.lists.target import Paths, Target
from driverforge_mirror.needs.needed import ClusterSettings, needs_of, policies
from driverforge_mirror.needs.nodes import read_nodes
from driverforge_mirror.rewrite import not_rewritten, rewritten
from driverforge_mirror.shapes import MirrorLockDocument
from driverforge_mirror.yamltext import parse_documents, read_mapping
from support.samples.clusternodes import node, write_nodes

CASES = Path(__file__).resolve().parents[1] / "cases/charts"
SITE = Target(host="registry.site", path="kse")
DIGEST = "sha256:" + "a" * 64


def lock_of(settings: ClusterSettings) -> MirrorLockDocument:
    needs = needs_of(settings)
    found = {image: Found(digest=DIGEST, media_type="", size=0, platforms=()) for image in needs.images}
    return lock_document(settings.chart, {}, needs, found)


def values_of(text: str) -> Any:
    return parse_documents(text.encode(), "x")[0]


def chart_settings(tmp_path: Path, *values: Mapping[str, Any], version: str = "v26.7.0") -> ClusterSettings:
    chart = find_chart(version, resources.charts())
    nodes = read_nodes(write_nodes(tmp_path, node("gpu-0"), node("gpu-1", os=("rhel", "9.4"))))
    return ClusterSettings(chart=chart, values=values, nodes=nodes)


def images(settings: ClusterSettings) -> set[str]:
    return set(needs_of(settings).images)


@pytest.mark.parametrize("paths", Paths)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "gds: {enabled: true}\ndcgm: {enabled: true}\nnodeStatusExporter: {enabled: true}",
        "driver: {usePrecompiled: true, version: 580}",
        "driver: {nvidiaDriverCRD: {enabled: true}}",
        "driver: {repository: site.test/gpu}\nsandboxWorkloads: {enabled: true}",
    ],
)
def test_values_behind_your_own_ask_for_the_mirror_alone(tmp_path: Path, text: str, paths: Paths) -> None:
    target = Target(host="registry.site:5000", path="kse", paths=paths)
    before = chart_settings(tmp_path, *([values_of(text)] if text else []))
    document = lock_of(before)
    overlay = values_of(rewritten(document, target)["values.yaml"])
    after = chart_settings(tmp_path, *before.values, overlay)
    places = target.places(one["image"] for one in document["images"])
    assert images(after) == {str(place) for place in places.values()}
    # nothing but where images lie, so a version is followed as before
    assert {path.rpartition(".")[2] for path in leaves(overlay)} == {"repository"}


def test_our_charts_operator_is_moved_whole(tmp_path: Path) -> None:
    given = values_of("driverforge: {image: 'r.site/ci/driverforge-operator:v1'}\ndriver: {version: 580.1}")
    before = chart_settings(tmp_path, given, version="driverforge")
    overlay = values_of(rewritten(lock_of(before), SITE)["values.yaml"])
    assert overlay["driverforge"] == {"image": "registry.site/kse/ci/driverforge-operator:v1"}
    after = chart_settings(tmp_path, given, overlay, version="driverforge")
    assert {image.partition("/")[0] for image in images(after)} == {"registry.site"}


def test_what_a_user_wrote_by_hand_comes_out(tmp_path: Path) -> None:
    theirs = read_mapping(CASES / "kubesphere-mirror.yaml")["gpu-operator"]
    plain = values_of(
        "driver: {version: 550-5.15.0-131-generic}\n"
        "node-feature-discovery: {image: {repository: docker.io/kubesphere/node-feature-discovery}}"
    )
    document = lock_of(chart_settings(tmp_path, plain, version="v23.9.2"))
    target = Target(host="dockerhub.kubekey.local", path="kse")
    ours = values_of(rewritten(document, target)["values.yaml"])
    assert len(list(leaves(ours))) == 10
    assert {path: at(ours, path) for path in leaves(ours)} == {
        path: at(theirs, path) for path in leaves(ours)
    }


def test_a_chart_around_it_has_the_values_below_its_name(tmp_path: Path) -> None:
    settings = chart_settings(tmp_path)
    chart = settings.chart
    assert chart is not None
    inside = Chart(
        name=chart.name,
        version=chart.version,
        app_version=chart.app_version,
        values=chart.values,
        source="umbrella",
        prefix="gpu-operator",
    )
    document = lock_of(ClusterSettings(chart=inside, nodes=settings.nodes))
    assert set(values_of(rewritten(document, SITE)["values.yaml"])) == {"gpu-operator"}


POLICY = """
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec:
  validator: {repository: r.site, image: gpu-operator, version: v26.7.0}
  driver: {useNvidiaDriverCRD: true}
  toolkit: {image: "r.site/container-toolkit:v1.20.0"}
  devicePlugin: {enabled: false}
  dcgm: {enabled: false}
  dcgmExporter: {enabled: false}
  gfd: {enabled: false}
  migManager: {enabled: false}
---
kind: NVIDIADriver
metadata: {name: jammy}
spec: {repository: r.site, image: driver, version: "595.91.07", gds: {enabled: true, repository: r.site,
  image: nvidia-fs, version: "2.29.4"}, manager: {repository: r.site, image: manager, version: v0.12.0}}
"""


def test_patches_of_a_clusters_objects(tmp_path: Path) -> None:
    nodes = chart_settings(tmp_path).nodes
    documents = parse_documents(POLICY.encode(), "policy.yaml")
    policy, drivers = policies(documents)
    document = lock_of(ClusterSettings(chart=None, policy=policy, drivers=drivers, nodes=nodes))
    files = rewritten(document, SITE)
    assert "values.yaml" not in files
    patched = [
        merged(documents[0], values_of(files["clusterpolicy-patch.yaml"])),
        merged(documents[1], values_of(files["nvidiadriver-jammy-patch.yaml"])),
    ]
    policy, drivers = policies(patched)
    after = images(ClusterSettings(chart=None, policy=policy, drivers=drivers, nodes=nodes))
    assert after == {str(place) for place in SITE.places(one["image"] for one in document["images"]).values()}
    assert "registry.site/kse/nvidia-fs:2.29.4-rhel9" in after


def test_an_object_whose_name_is_a_path_is_refused(tmp_path: Path) -> None:
    documents = parse_documents(POLICY.replace("jammy", "../../x").encode(), "policy.yaml")
    policy, drivers = policies(documents)
    nodes = chart_settings(tmp_path).nodes
    document = lock_of(ClusterSettings(chart=None, policy=policy, drivers=drivers, nodes=nodes))
    with pytest.raises(InputError, match="is no name of a Kubernetes object"):
        rewritten(document, SITE)


@pytest.mark.parametrize(
    ("paths", "server"),
    [(Paths.KEEP, "https://registry.site/v2/kse"), (Paths.HOST, "https://registry.site/v2/kse/nvcr.io")],
)
def test_containerd_asks_the_mirror_and_nobody_else(tmp_path: Path, paths: Paths, server: str) -> None:
    target = Target(host="registry.site", path="kse", paths=paths)
    files = rewritten(lock_of(chart_settings(tmp_path)), target)
    assert {name for name in files if name.startswith("certs.d/")} == {
        "certs.d/nvcr.io/hosts.toml",
        "certs.d/registry.k8s.io/hosts.toml",
    }
    hosts = tomllib.loads(files["certs.d/nvcr.io/hosts.toml"])
    how = {"capabilities": ["pull", "resolve"], "override_path": True}
    assert hosts == {"server": server, **how, "host": {server: how}}


def test_flattened_paths_have_no_hosts_toml(tmp_path: Path) -> None:
    target = Target(host="registry.site", paths=Paths.FLATTEN)
    files = rewritten(lock_of(chart_settings(tmp_path)), target)
    assert not [name for name in files if name.startswith("certs.d/")]


def test_other_runtimes_get_each_repository(tmp_path: Path) -> None:
    target = Target(host="registry.site", path="kse", paths=Paths.FLATTEN, plain=True)
    files = rewritten(lock_of(chart_settings(tmp_path)), target)
    conf = tomllib.loads(files["registries.conf.d/driverforge-mirror.conf"])
    driver = {"prefix": "nvcr.io/nvidia/driver", "location": "registry.site/kse/driver", "insecure": True}
    assert driver in conf["registry"]
    digests, tags = yaml.safe_load_all(files["openshift.yaml"])
    assert (digests["kind"], tags["kind"]) == ("ImageDigestMirrorSet", "ImageTagMirrorSet")
    assert digests["spec"]["imageDigestMirrors"] == tags["spec"]["imageTagMirrors"]
    assert {one["mirrorSourcePolicy"] for one in tags["spec"]["imageTagMirrors"]} == {"NeverContactSource"}
    assert len(conf["registry"]) == len(tags["spec"]["imageTagMirrors"]) == 8


def test_what_is_to_be_copied_where(tmp_path: Path) -> None:
    lines = rewritten(lock_of(chart_settings(tmp_path)), SITE)["images.txt"].splitlines()
    assert f"nvcr.io/nvidia/driver@{DIGEST} registry.site/kse/nvidia/driver:595.91.07-rhel9" in lines


def test_a_tag_that_is_pinned_by_a_digest_is_the_place(tmp_path: Path) -> None:
    """skopeo refuses a place with both, and regctl would leave the tag out."""
    pinned = {"toolkit": {"version": f"v1@{DIGEST}"}}
    lines = rewritten(lock_of(chart_settings(tmp_path, pinned)), SITE)["images.txt"].splitlines()
    toolkit = "nvidia/k8s/container-toolkit"
    assert f"nvcr.io/{toolkit}@{DIGEST} registry.site/kse/{toolkit}:v1" in lines


def test_images_in_lists_are_left_to_you(tmp_path: Path) -> None:
    text = "sandboxWorkloads: {enabled: true}\nkataManager: {enabled: true}"
    document = lock_of(chart_settings(tmp_path, values_of(text), version="v23.9.2"))
    assert len(not_rewritten(document)) == 2


def test_two_repositories_never_become_one() -> None:
    names = ["nvcr.io/nvidia/driver:1", "site.test/gpu/driver:2"]
    with pytest.raises(InputError, match="two repositories would become one with --paths flatten") as caught:
        Target(host="r.site", paths=Paths.FLATTEN).places(names)
    assert caught.value.details == ("r.site/driver: nvcr.io/nvidia/driver, site.test/gpu/driver",)
    with pytest.raises(InputError, match="--paths keep"):
        Target(host="r.site").places(["a.site/x/driver:1", "b.site/x/driver:1"])
    kept = Target(host="r.site", paths=Paths.HOST).places(["a.site:5000/x/driver:1", "b.site/x/driver:1"])
    assert str(kept["a.site:5000/x/driver:1"]) == "r.site/a.site-5000/x/driver:1"


@pytest.mark.parametrize("text", ["", "registry", "ftp://r.site", "r.site/UPPER", "r.site/x:tag", "/x"])
def test_what_is_no_mirror_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Target.parse(text, Paths.KEEP)


def test_a_mirror_is_read_with_and_without_tls() -> None:
    assert Target.parse("http://r.site:5000/a/b/", Paths.KEEP) == Target(
        host="r.site:5000", path="a/b", plain=True
    )
    assert not Target.parse("https://localhost", Paths.KEEP).plain
