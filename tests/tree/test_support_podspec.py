"""The runtime specification that a kubelet and containerd's CRI plugin make of docs/kubernetes/*.yaml."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from driverforge_core.errors import InputError, Unsupported
from support.machines.podspec import HostPath, NodeFacts, Pod, translate
from support.machines.store import StoredImage, chain_id

DRIVER = Path(__file__).parents[2] / "docs/kubernetes/driver.yaml"
IMAGE = StoredImage(
    name="registry.example.com/driver:1",
    digest="sha256:aa",
    chain="sha256:bb",
    entrypoint=("nvidia-driver",),
    command=("init",),
    environment=("PATH=/usr/bin", "DRIVER_VERSION=535.261.03", "KERNEL_MODULE_TYPE=open"),
    directory="/drivers",
)
NULL = {"path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 438, "uid": 0, "gid": 0}
NODE = NodeFacts(devices=[NULL], capabilities=["CAP_SYS_ADMIN", "CAP_SYS_MODULE"])


@pytest.fixture
def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(DRIVER.read_text()))


def _container(documents: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = _template(documents)["containers"][0]
    return found


def _template(documents: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = next(document for document in documents if document["kind"] == "DaemonSet")[
        "spec"
    ]["template"]["spec"]
    return found


def _mount(pod: Pod, destination: str) -> dict[str, Any]:
    found: dict[str, Any] = next(mount for mount in pod.spec["mounts"] if mount["destination"] == destination)
    return found


def test_bidirectional_propagation_makes_the_root_shared_too(documents: list[dict[str, Any]]) -> None:
    pod = translate(documents, image=IMAGE, node=NODE)
    assert _mount(pod, "/run/nvidia")["options"] == ["rbind", "rshared", "rw"]
    assert _mount(pod, "/run/mellanox/drivers")["options"] == ["rbind", "rslave", "rw"]
    assert _mount(pod, "/lib/firmware")["options"] == ["rbind", "rprivate", "rw"]
    assert _mount(pod, "/host-etc/os-release")["options"] == ["rbind", "rprivate", "ro"]
    assert pod.spec["linux"]["rootfsPropagation"] == "rshared"


def test_parents_are_mounted_before_what_is_below_them(documents: list[dict[str, Any]]) -> None:
    order = [mount["destination"] for mount in translate(documents, image=IMAGE, node=NODE).spec["mounts"]]
    for child, parent in (
        ("/sys/devices/system", "/sys"),
        ("/run/mellanox/drivers/usr/src", "/run/mellanox/drivers"),
        ("/dev/log", "/dev"),
    ):
        assert order.index(parent) < order.index(child)


def test_privileged_with_the_hosts_pids_and_nothing_else_of_the_host(documents: list[dict[str, Any]]) -> None:
    spec = translate(documents, image=IMAGE, node=NODE).spec
    assert {entry["type"] for entry in spec["linux"]["namespaces"]} == {"mount", "ipc", "network", "uts"}
    assert spec["process"]["capabilities"]["bounding"] == ["CAP_SYS_ADMIN", "CAP_SYS_MODULE"]
    assert spec["linux"]["devices"] == [NULL]
    assert "maskedPaths" not in spec["linux"]
    assert spec["process"]["oomScoreAdj"] == -997  # system-node-critical


def test_environment_is_the_images_and_the_manifests_wins(documents: list[dict[str, Any]]) -> None:
    environment = translate(documents, image=IMAGE, node=NODE, environment={"EXTRA": "1"}).spec["process"][
        "env"
    ]
    assert "DRIVER_VERSION=535.261.03" in environment
    assert "KERNEL_MODULE_TYPE=auto" in environment
    assert "NODE_NAME=guest" in environment
    assert "EXTRA=1" in environment
    assert len({entry.partition("=")[0] for entry in environment}) == len(environment)


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (None, None, ["nvidia-driver", "init"]),
        (["a"], None, ["a"]),
        (None, ["load"], ["nvidia-driver", "load"]),
        (["a"], ["b"], ["a", "b"]),
    ],
)
def test_command_and_arguments(
    documents: list[dict[str, Any]], command: list[str] | None, args: list[str] | None, expected: list[str]
) -> None:
    container = _container(documents)
    for key, value in (("command", command), ("args", args)):
        container.pop(key)
        if value is not None:
            container[key] = value
    process = translate(documents, image=IMAGE, node=NODE).spec["process"]
    assert process["args"] == expected
    assert process["cwd"] == "/drivers"


def test_arguments_given_stand_for_an_edit_of_the_manifest(documents: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(documents)
    assert translate(documents, image=IMAGE, node=NODE, arguments=["load"]).spec["process"]["args"] == [
        "nvidia-driver",
        "load",
    ]
    assert documents == before


def test_host_paths_keep_their_type(documents: list[dict[str, Any]]) -> None:
    paths = translate(documents, image=IMAGE, node=NODE).host_paths
    assert HostPath(path="/run/nvidia", kind="DirectoryOrCreate") in paths
    assert HostPath(path="/dev/log", kind="") in paths
    assert HostPath(path="/sys/devices/system", kind="Directory") in paths


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            lambda documents: _template(documents).update(shareProcessNamespace=True),
            "pod field shareProcessNamespace",
        ),
        (lambda documents: _container(documents).update(envFrom=[]), "container field envFrom"),
        (
            lambda documents: _container(documents)["securityContext"].update(readOnlyRootFilesystem=True),
            "securityContext.readOnlyRootFilesystem",
        ),
        (
            lambda documents: _container(documents).update(securityContext={}),
            "a container that is not privileged",
        ),
        (lambda documents: _template(documents).pop("automountServiceAccountToken"), "service account token"),
        (lambda documents: _container(documents)["volumeMounts"][0].update(subPath="x"), "subPath"),
        (
            lambda documents: _template(documents)["volumes"][0].update(
                hostPath={"path": "/x", "type": "Strange"}
            ),
            "Strange",
        ),
        (
            lambda documents: _container(documents)["env"].append(
                {"name": "S", "valueFrom": {"secretKeyRef": {}}}
            ),
            "secretKeyRef",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    documents: list[dict[str, Any]], change: Any, named: str
) -> None:
    change(documents)
    with pytest.raises(Unsupported) as refusal:
        translate(documents, image=IMAGE, node=NODE)
    assert named in "\n".join(refusal.value.details)


def test_all_problems_come_at_once(documents: list[dict[str, Any]]) -> None:
    _template(documents).update(runtimeClassName="x", hostAliases=[])
    with pytest.raises(Unsupported) as refusal:
        translate(documents, image=IMAGE, node=NODE)
    assert refusal.value.details == ("pod field hostAliases", "pod field runtimeClassName")


def test_a_missing_object_container_or_volume_is_named(documents: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="no Job"):
        translate(documents, image=IMAGE, node=NODE, kind="Job")
    with pytest.raises(InputError, match="no container 'other'"):
        translate(documents, image=IMAGE, node=NODE, container="other")
    _template(documents)["volumes"].pop(0)
    with pytest.raises(InputError, match="no volume 'run-nvidia'"):
        translate(documents, image=IMAGE, node=NODE)


def test_chain_ids_follow_the_image_specification() -> None:
    assert chain_id(["sha256:aa"]) == "sha256:aa"
    assert (
        chain_id(["sha256:aa", "sha256:bb"]) == "sha256:" + hashlib.sha256(b"sha256:aa sha256:bb").hexdigest()
    )
