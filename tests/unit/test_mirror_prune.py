"""What `mirror prune` keeps, decided without a registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from driverforge_core.errors import InputError, Unsupported
from driverforge_mirror.lists.target import Paths, Target
from driverforge_mirror.prune.keep import Keep
from driverforge_mirror.prune.stock import Pruner, Stock, judge
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient, digest_of
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from driverforge_oci.transport import Request, Response
from support.fakes.memoryregistry import MemoryRegistry, answer

TARGET = Target.parse("registry.site/kse", Paths.KEEP)
PLACE = Reference(host="registry.site", repository="kse/nvidia/driver")
A, B, C, D = (f"sha256:{letter * 64}" for letter in "abcd")


def pod(*images: str) -> list[object]:
    containers = [{"image": image} for image in images]
    return [{"kind": "Pod", "metadata": {"namespace": "n", "name": "p"}, "spec": {"containers": containers}}]


def test_a_list_of_referrers_that_names_what_is_above_it_ends() -> None:
    stock = Stock(place=PLACE, tags={"1": A}, below={A: [B], B: [A, C], C: []})
    assert stock.closure(A) == [C, B, A]
    assert judge(stock, Keep(target=TARGET)).doomed == [C, B, A]


def test_what_is_above_goes_last_and_what_is_shared_stays() -> None:
    stock = Stock(place=PLACE, tags={"old": A, "new": D}, below={A: [B, C], D: [C], B: [], C: []})
    keep = Keep(target=TARGET, wanted={PLACE.repository: {"new": ["lock"]}})
    judged = judge(stock, keep)
    assert judged.doomed == [B, A]
    assert judged.kept == {D: ["lock"], C: ["part of new"]}


@pytest.mark.parametrize("deletes", [True, False])
def test_what_is_refused_while_an_index_has_it_goes_after_the_index(*, deletes: bool) -> None:
    """zot answers 405 for a platform of an index that is there, as others do where nothing can be deleted."""
    registry = MemoryRegistry()
    stored = registry.manifests
    image = registry.add_manifest("kse/nvidia/driver", "", OCI_MANIFEST, {"config": {}, "layers": []})
    entry = {"mediaType": OCI_MANIFEST, "digest": image, "size": 1}
    index = registry.add_manifest("kse/nvidia/driver", "old", OCI_INDEX, {"manifests": [entry]})

    def zot(request: Request) -> Response | None:
        if "/tags/list" in request.url:
            return answer(200, json.dumps({"tags": [name for _, name in stored if ":" not in name]}).encode())
        if request.method != "DELETE":
            return None
        digest = request.url.rpartition("/")[2]
        if not deletes or (digest == image and (PLACE.repository, index) in stored):
            return answer(405)
        for key in [key for key, value in stored.items() if digest_of(value[1]) == digest]:
            del stored[key]
        return answer(202)

    registry.trouble = zot
    pruner = Pruner(client=RegistryClient(Session(registry)), keep=Keep(target=TARGET), dropped={})
    plan = pruner.plan(PLACE)
    assert plan.doomed == [image, index]
    if deletes:
        assert [(one["digest"], one["state"]) for one in pruner.carry_out(plan)] == [
            (index, "deleted"),
            (image, "deleted"),
        ]
        assert not stored
    else:
        with pytest.raises(Unsupported, match="switched off"):
            list(pruner.carry_out(plan))


@pytest.mark.parametrize("name", ["nvcr.io/nvidia/driver", "registry.site/kse/nvidia/driver"])
def test_an_old_list_takes_nothing_that_runs(name: str) -> None:
    stock = Stock(place=PLACE, tags={}, below={A: [B, C], B: [], C: []})
    keep = Keep(target=TARGET)
    keep.add_dump("pods.json", pod(f"docker-pullable://{name}@{B}", "sha256:" + "0" * 64))
    assert judge(stock, keep, [A, B, C]).doomed == []
    assert judge(stock, Keep(target=TARGET), [A, B, C]).doomed == [B, C, A]


def test_a_kernel_keeps_its_drivers_alone() -> None:
    keep = Keep(target=TARGET)
    keep.add_dump("n", [{"kind": "Node", "status": {"nodeInfo": {"kernelVersion": "6.12.94+deb13-amd64"}}}])
    assert keep.for_kernel("580.1-6.12.94_deb13-amd64-debian13")
    assert not keep.for_kernel("580.1-6.12.94_deb13-amd64x-debian13")
    assert not keep.for_kernel("580.1-debian13")


def test_what_nodes_have_counts_where_a_dump_has_other_objects_than_pods() -> None:
    policy = {"kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"driver": {"image": "driver"}}}
    node = {"kind": "Node", "status": {"images": [{"names": [f"nvcr.io/nvidia/driver@{A}"]}]}}
    stock = Stock(place=PLACE, tags={"old": A}, below={A: []})
    keep = Keep(target=TARGET)
    keep.add_dump("dump.yaml", [policy, node])
    assert judge(stock, keep).doomed == []
    running = Keep(target=TARGET)
    running.add_dump("dump.yaml", [node, *pod("nvcr.io/nvidia/driver:new")])
    assert judge(stock, running).doomed == [A]


def test_what_was_made_here_stays_with_its_list() -> None:
    """Packages and charts lie at addresses before they are copied; in the mirror they are as any image."""
    image = "localhost/driverforge/packages:debian12-amd64"
    content: dict[str, Any] = {
        "image": image,
        "digest": A,
        "media_type": "application/x",
        "size": 5,
        "made": "{}",
    }
    platform = {"platform": "", "digest": A, "size": 2, "blobs": {B: 3}}
    made = {
        **content,
        "platforms": [platform],
        "addresses": {B: "http://deb.site/a"},
        "reasons": [],
        "attached": [],
    }
    lock: Any = {"schema": 1, "chart": None, "inputs": {}, "images": [made], "left_out": [], "warnings": []}
    keep = Keep(target=TARGET)
    keep.add_lock("lock", lock)
    place = Reference(host="registry.site", repository="kse/driverforge/packages")
    stock = Stock(place=place, tags={"debian12-amd64": A, "debian13-amd64": C}, below={A: [], C: []})
    judged = judge(stock, keep)
    assert (list(judged.kept), judged.doomed) == ([A], [C])


def test_a_signature_of_what_nobody_knows_is_left() -> None:
    tag = f"sha256-{'b' * 64}.sig"
    stock = Stock(place=PLACE, tags={tag: C}, below={B: [], C: []})
    judged = judge(stock, Keep(target=TARGET))
    assert (judged.doomed, len(judged.left)) == ([], 1)
    gone = Stock(place=PLACE, tags={tag: C}, below={C: []})
    assert judge(gone, Keep(target=TARGET)).doomed == [C]


def test_a_dump_without_objects_is_refused() -> None:
    with pytest.raises(InputError, match="no object of a cluster"):
        Keep(target=TARGET).add_dump("empty.json", [{}])


def inventory(mirror: str, place: str) -> Any:
    image = {"image": "nvcr.io/nvidia/driver:1", "place": place, "digest": A, "state": "held"}
    images = [{**image, "missing": [], "reason": ""}]
    document = {"schema": 1, "lock": "", "mirror": mirror, "deep": True, "images": images, "held": {}}
    return {**document, "runs": []}


@pytest.mark.parametrize(
    "mirror", ["registry.site/kse", "registry.inside/kse", "registry.inside", "registry.inside/other/nvcr.io"]
)
def test_an_inventory_keeps_its_images_whatever_mirror_it_is_of(mirror: str) -> None:
    keep = Keep(target=TARGET, wanted={"kse/nvidia/driver": {}})
    keep.add_inventory("receipt.json", inventory(mirror, f"{mirror}/nvidia/driver:1"))
    stock = Stock(place=PLACE, tags={"1": A, "2": C}, below={A: [], C: []})
    judged = judge(stock, keep)
    assert (list(judged.kept), judged.doomed) == ([A], [C])


def test_an_inventory_that_would_keep_nothing_is_refused() -> None:
    keep = Keep(target=TARGET, wanted={"kse/nvidia/toolkit": {}})
    with pytest.raises(InputError, match="would keep nothing"):
        keep.add_inventory("receipt.json", inventory("registry.b", "registry.b/nvidia/driver:1"))
