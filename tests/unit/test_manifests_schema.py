"""docs/kubernetes/*.yaml: strictly what Kubernetes accepts, and the pod that NVIDIA's operator would make.

tests/cluster gives the same files to a real API server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from driverforge_toolkit.toolkit.options import OPTIONS
from driverforge_toolkit.toolkit.settings import settings_of

FOLDER = Path(__file__).parents[2] / "docs/kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
RELEASES = [f"1.{minor}" for minor in range(29, 38)]

# mountPath: (path on the node, propagation, read-only); gpu-operator v26.7,
# assets/state-driver/0500_daemonset.yaml, nvidia-driver-ctr. Its startup probe's script, a ConfigMap, is a
# command of our image.
UPSTREAM_MOUNTS = {
    "/run/nvidia": ("/run/nvidia", "Bidirectional", False),
    "/run/nvidia-fabricmanager": ("/run/nvidia-fabricmanager", None, False),
    "/run/nvidia-topologyd": ("/run/nvidia-topologyd", None, False),
    "/var/log": ("/var/log", None, False),
    "/dev/log": ("/dev/log", None, False),
    "/host-etc/os-release": ("/etc/os-release", None, True),
    "/run/mellanox/drivers/usr/src": ("/run/mellanox/drivers/usr/src", "HostToContainer", False),
    "/run/mellanox/drivers": ("/run/mellanox/drivers", "HostToContainer", False),
    "/sys/devices/system": ("/sys/devices/system", None, False),
    "/sys/module/firmware_class/parameters/path": ("/sys/module/firmware_class/parameters/path", None, False),
    "/lib/firmware": ("/run/nvidia/driver/lib/firmware", None, False),
}

# the same of nvidia-container-toolkit-ctr, without those of the one runtime that an operator has for all of
# its nodes (hooks.d, config-dir, config-dir.d, sock-dir): ours serves nodes of several. The entrypoint's
# script, a ConfigMap, is the command of our image
TOOLKIT_MOUNTS = {
    "/host": ("/", "HostToContainer", True),
    "/driver-root": ("/run/nvidia/driver", "HostToContainer", False),
    "/usr/local/nvidia": ("/usr/local/nvidia", None, False),
    "/run/nvidia/toolkit": ("/run/nvidia/toolkit", None, False),
    "/run/nvidia/validations": ("/run/nvidia/validations", None, False),
    "/var/run/cdi": ("/var/run/cdi", None, False),
}


def _documents(file: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document is not None]


def _driver() -> dict[str, Any]:
    return _daemonset("driver.yaml")


def _daemonset(name: str) -> dict[str, Any]:
    found = [document for document in _documents(FOLDER / name) if document["kind"] == "DaemonSet"]
    assert len(found) == 1
    return found[0]


def _repeated(node: yaml.Node | None) -> list[str]:
    """Keys that stand twice in one mapping, as 'LINE: key'.

    PyYAML takes them without a word, and the API server refuses them.
    """
    if isinstance(node, yaml.SequenceNode):
        return [found for child in node.value for found in _repeated(child)]
    if not isinstance(node, yaml.MappingNode):
        return []
    keys = [key.value for key, _ in node.value]
    here = [
        f"{key.start_mark.line + 1}: {key.value}"
        for place, (key, _) in enumerate(node.value)
        if key.value in keys[:place]
    ]
    return here + [found for _, child in node.value for found in _repeated(child)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
@pytest.mark.parametrize("release", RELEASES)
def test_every_document_fits_the_schema_of_every_release(file: Path, release: str) -> None:
    import kubernetes_validate  # takes a second, as jsonschema does: not in each process of the tier

    documents = _documents(file)
    assert documents
    assert {kubernetes_validate.validate(document, release, strict=True) for document in documents} == {
        release
    }


def test_the_schema_refuses_a_misspelt_field() -> None:
    import kubernetes_validate

    driver = _driver()
    container = driver["spec"]["template"]["spec"]["containers"][0]
    container["volumMounts"] = container.pop("volumeMounts")
    with pytest.raises(kubernetes_validate.ValidationError, match="'volumMounts' was unexpected"):
        kubernetes_validate.validate(driver, RELEASES[-1], strict=True)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_key_stands_twice(file: Path) -> None:
    assert [
        line
        for node in yaml.compose_all(file.read_text(), Loader=yaml.SafeLoader)
        for line in _repeated(node)
    ] == []


def test_a_key_that_stands_twice_is_found() -> None:
    assert _repeated(yaml.compose("a:\n  - b: 1\n    c: 2\n    b: 3\n", Loader=yaml.SafeLoader)) == ["4: b"]


@pytest.mark.parametrize(
    ("name", "expected"), [("driver.yaml", UPSTREAM_MOUNTS), ("toolkit.yaml", TOOLKIT_MOUNTS)]
)
def test_the_mounts_are_exactly_those_of_upstream(name: str, expected: dict[str, Any]) -> None:
    pod = _daemonset(name)["spec"]["template"]["spec"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    mounts = pod["containers"][0]["volumeMounts"]
    found = {
        mount["mountPath"]: (
            paths[mount["name"]],
            mount.get("mountPropagation"),
            mount.get("readOnly", False),
        )
        for mount in mounts
    }
    assert found == expected
    assert {mount["name"] for mount in mounts} == set(paths), "a volume that nothing mounts"


def test_the_toolkit_runs_as_upstream_runs_it_and_says_nothing_wrong() -> None:
    spec = _daemonset("toolkit.yaml")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["hostPID"] is True
    assert container["securityContext"]["privileged"] is True
    assert (container["command"], "args" in container) == (["nvidia-toolkit"], False)
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert environment.keys() <= {name for option in OPTIONS for name in option.variables}
    assert settings_of({}, environment).revert_on == "uninstall"


def test_the_driver_runs_as_upstream_runs_it() -> None:
    spec = _driver()["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert pod["hostPID"] is True
    assert container["securityContext"]["privileged"] is True
    assert (container["command"], container["args"]) == (["nvidia-driver"], ["init"])
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(("name", "rolls"), [("driver.yaml", False), ("toolkit.yaml", True)])
def test_the_instructions_wait_in_a_way_that_fits_the_update_strategy(name: str, rolls: bool) -> None:
    """kubectl: "rollout status is only available for RollingUpdate strategy type"."""
    text, daemonset = (FOLDER / name).read_text(), _daemonset(name)
    metadata = daemonset["metadata"]
    assert (daemonset["spec"]["updateStrategy"]["type"] == "RollingUpdate") is rolls
    assert (
        f"kubectl -n {metadata['namespace']} rollout status daemonset/{metadata['name']}" in text
    ) is rolls
    (label,) = daemonset["spec"]["selector"]["matchLabels"].items()
    selector = "=".join(label)
    waits = f"kubectl -n {metadata['namespace']} wait --for=condition=Ready pod -l {selector} --timeout=25m"
    assert (waits in text) is not rolls


def test_the_wait_for_the_driver_is_longer_than_its_start_may_take() -> None:
    probe = _driver()["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    assert probe["initialDelaySeconds"] + probe["failureThreshold"] * probe["periodSeconds"] < 25 * 60


def test_no_driver_of_another_namespace_shares_a_node_with_ours() -> None:
    (term,) = _driver()["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["namespaceSelector"] == {}
    (expression,) = term["labelSelector"]["matchExpressions"]
    # the labels of the pods of NVIDIA's operator v26.7 that load a driver
    assert expression["values"] == ["nvidia-driver", "nvidia-vgpu-manager"]
