"""What a cluster needs, of real charts and a user's own values: every image is explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from driverforge_build import resources
from driverforge_build.lock.pins import Lock
from driverforge_core.errors import DriverforgeError, InputError, Unsupported
from driverforge_core.kernel import KernelRelease
from driverforge_mirror.charts.chart import Chart, find_chart
from driverforge_mirror.needs.needed import ClusterSettings, Needs, needs_of, policies
from driverforge_mirror.needs.nodes import Node, read_nodes
from driverforge_mirror.yamltext import parse_documents, read_mapping
from support.samples.clusternodes import node, write_nodes
from support.samples.locks import kernel, target

CASES = Path(__file__).resolve().parents[1] / "cases/charts"
GENERIC = "5.15.0-131-generic"


def known(version: str) -> Chart:
    return find_chart(version, resources.charts())


def values_of(text: str) -> dict[str, Any]:
    (document,) = parse_documents(text.encode(), "values.yaml")
    assert isinstance(document, dict)
    return document


def nodes(tmp_path: Path, *documents: dict[str, Any]) -> tuple[Node, ...]:
    return read_nodes(write_nodes(tmp_path, *documents))


def of_values(tmp_path: Path, text: str, *documents: dict[str, Any], version: str = "v26.7.0") -> Needs:
    values = [values_of(text)] if text else []
    found = nodes(tmp_path, *(documents or (node("gpu-0"),)))
    return needs_of(ClusterSettings(chart=known(version), values=values, nodes=found))


def drivers(needs: Needs) -> list[str]:
    return sorted(image.rpartition(":")[2] for image in needs.images if "/driver" in image)


def test_the_fifteen_images_of_a_users_list_are_explained_one_by_one(tmp_path: Path) -> None:
    values = [read_mapping(CASES / "kubesphere-mirror.yaml")]
    settings = ClusterSettings(chart=known("v23.9.2"), values=values, nodes=nodes(tmp_path, node("node")))
    needs = needs_of(settings)
    site = "dockerhub.kubekey.local/kse/"
    assert sorted(image.removeprefix(site) for image in needs.images) == [
        "kubesphere/node-feature-discovery:v0.14.2",
        "nvidia/cloud-native/gpu-operator-validator:v23.9.2",
        "nvidia/cloud-native/k8s-driver-manager:v0.6.5",
        "nvidia/cloud-native/k8s-mig-manager:v0.6.0-ubuntu20.04",
        "nvidia/driver:550-5.15.0-131-generic-ubuntu22.04",
        "nvidia/gpu-feature-discovery:v0.8.2-ubi8",
        "nvidia/gpu-operator:v23.9.2",
        "nvidia/k8s-device-plugin:v0.14.5-ubi8",
        "nvidia/k8s/container-toolkit:v1.14.6-ubuntu20.04",
        "nvidia/k8s/dcgm-exporter:3.3.0-3.2.0-ubuntu22.04",
    ]
    reasons = {
        (one.image.removeprefix(site), one.slot): one.text.partition(": ")[2] for one in needs.left_out
    }
    sandbox = "sandboxWorkloads.enabled is false"
    assert reasons == {
        ("nvidia/cloud-native/dcgm:3.3.0-1-ubuntu22.04", "dcgm"): "dcgm.enabled is false",
        ("nvidia/cloud-native/k8s-cc-manager:v0.1.1", "ccManager"): f"{sandbox}, ccManager.enabled is false",
        ("nvidia/cloud-native/k8s-kata-manager:v0.1.2", "kataManager"): f"{sandbox}, "
        "kataManager.enabled is false",
        ("nvidia/cloud-native/vgpu-device-manager:v0.2.4", "vgpuDeviceManager"): sandbox,
        ("nvidia/cuda:12.3.2-base-ubi8", "operator.initContainer"): "platform.openshift is false",
        ("nvidia/cuda:12.3.2-base-ubi8", "vfioManager"): sandbox,
        ("nvidia/kubevirt-gpu-device-plugin:v1.2.4", "sandboxDevicePlugin"): sandbox,
        # what the list of fifteen does not have
        ("nvidia/cloud-native/k8s-driver-manager:v0.6.2", "vfioManager.driverManager"): sandbox,
        ("nvidia/cloud-native/k8s-driver-manager:v0.6.4", "vgpuManager.driverManager"): f"{sandbox}, "
        "vgpuManager.enabled is false",
        ("nvidia/cloud-native/nvidia-fs:2.17.5", "gds"): "gds.enabled is false",
    }
    assert needs.warnings == []


def test_the_current_chart_as_it_comes(tmp_path: Path) -> None:
    needs = of_values(tmp_path, "")
    assert sorted(needs.images) == [
        "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
        "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0",
        "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04",
        "nvcr.io/nvidia/gpu-operator:v26.7.0",
        "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
        "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0",
        "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
        "registry.k8s.io/nfd/node-feature-discovery:v0.19.0",
    ]
    assert [one.slot for one in needs.images["nvcr.io/nvidia/k8s-device-plugin:v0.20.0"]] == [
        "devicePlugin",
        "gfd",
    ]


OURS = "driverforge: {image: 'r.site/driverforge-operator:v0.1.0'}\n"


def test_our_own_chart_as_it_comes(tmp_path: Path) -> None:
    rocky = node("gpu-1", os=("rocky", "9.5"), kernel="5.14.0-503.14.1.el9_5.x86_64")
    needs = of_values(tmp_path, OURS, node("gpu-0"), rocky, version="driverforge")
    assert sorted(needs.images) == [
        "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
        "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0",
        "nvcr.io/nvidia/driver:595.91.07-rocky9",
        "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04",
        "nvcr.io/nvidia/gpu-operator:v26.7.0",
        "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
        "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0",
        "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
        "r.site/driverforge-operator:v0.1.0",
        "registry.k8s.io/nfd/node-feature-discovery:v0.19.0",
    ]
    # the systems share a ClusterPolicy there, unlike with NVIDIA's operator
    assert needs.warnings == []


def test_our_own_chart_takes_what_a_cluster_policy_knows(tmp_path: Path) -> None:
    text = OURS + "dcgm: {enabled: true, repository: r.site, image: dcgm, version: '4'}\n"
    needs = of_values(tmp_path, text, version="driverforge")
    assert "r.site/dcgm:4" in needs.images
    assert needs.warnings == []


def test_our_own_chart_without_its_operators_image_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the values: driverforge is in use and names no image") as caught:
        of_values(tmp_path, "", version="driverforge")
    assert "set driverforge.image" in caught.value.resolution


def test_a_validator_without_a_version_is_not_of_our_charts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="validator is in use and names no image"):
        of_values(tmp_path, OURS + "validator: {version: }", version="driverforge")


def test_everything_of_the_sandbox_is_needed_where_it_is_on(tmp_path: Path) -> None:
    text = (
        "sandboxWorkloads: {enabled: true}\nvgpuManager: {enabled: true, repository: r.site, version: 1.2.3}"
    )
    needs = of_values(tmp_path, text)
    slots = {reason.slot for reasons in needs.images.values() for reason in reasons}
    assert {"vfioManager", "vgpuManager", "vgpuDeviceManager", "sandboxDevicePlugin"} <= slots
    assert "r.site/vgpu-manager:1.2.3-ubuntu22.04" in needs.images
    assert not {"kataSandboxDevicePlugin", "ccManager"} & slots
    kata = of_values(tmp_path, "sandboxWorkloads: {enabled: true, mode: kata}")
    slots = {reason.slot for reasons in kata.images.values() for reason in reasons}
    assert {"kataSandboxDevicePlugin", "ccManager"} <= slots
    assert "sandboxDevicePlugin" not in slots


def test_kata_of_an_older_chart_brings_its_guests_files(tmp_path: Path) -> None:
    text = "sandboxWorkloads: {enabled: true}\nkataManager: {enabled: true}"
    needs = of_values(tmp_path, text, version="v23.9.2")
    guests = "nvcr.io/nvidia/cloud-native/kata-gpu-artifacts:ubuntu22.04-535."
    assert {f"{guests}54.03", f"{guests}86.10-snp"} <= set(needs.images)


def test_a_chart_with_an_image_of_unknown_use_is_refused() -> None:
    chart = known("v26.7.0")
    odd = {**chart.values, "newThing": {"agent": {"repository": "nvcr.io/nvidia", "image": "new"}}}
    changed = Chart(name="gpu-operator", version="v99", app_version="v99", values=odd, source="x")
    with pytest.raises(InputError, match="does not know the use of") as caught:
        needs_of(ClusterSettings(chart=changed))
    assert caught.value.details == ("newThing.agent: repository: nvcr.io/nvidia, image: new",)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("global: {imageRegistry: mirror.site}\nmig: {strategy: none}", "global.imageRegistry"),
        ("dcgmexporter: {enabled: false}\ndriver: {}", "dcgmexporter.enabled"),
        ("driver: {}\ndevicePlugn: {repository: mirror.site}", "devicePlugn.repository"),
        ("driver: {manger: {version: v1}}", "driver.manger.version"),
    ],
)
def test_values_without_effect_are_told(tmp_path: Path, text: str, path: str) -> None:
    (told,) = of_values(tmp_path, text).warnings
    assert told.startswith(f"{path} has no effect")


def test_values_of_another_chart_altogether_are_told(tmp_path: Path) -> None:
    (told,) = of_values(tmp_path, "my-operator: {driver: {enabled: false}}").warnings
    assert told.startswith("my-operator has no effect")


@pytest.mark.parametrize("text", ["toolkit: {repository: }", "operator: {image: ''}"])
def test_a_slot_in_use_that_names_no_image_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="is in use and names no image"):
        of_values(tmp_path, text)


def test_a_driver_that_is_off_needs_no_nodes() -> None:
    needs = needs_of(ClusterSettings(chart=known("v26.7.0"), values=[values_of("driver: {enabled: false}")]))
    assert drivers(needs) == []
    assert {"driver", "driver.manager"} <= {one.slot for one in needs.left_out}


def test_without_nodes_a_driver_is_an_error() -> None:
    with pytest.raises(InputError, match="no nodes are given"):
        needs_of(ClusterSettings(chart=known("v26.7.0")))


def test_a_gpu_cluster_is_refused_rather_than_half_listed() -> None:
    values = [values_of("gpuCluster: {deployCR: true}")]
    with pytest.raises(Unsupported, match="GPUCluster"):
        needs_of(ClusterSettings(chart=known("v26.7.0"), values=values))


def test_each_system_has_its_driver_and_several_are_warned_of(tmp_path: Path) -> None:
    rocky = node("gpu-1", os=("rocky", "9.5"), kernel="5.14.0-503.14.1.el9_5.x86_64")
    needs = of_values(tmp_path, "", node("gpu-0"), rocky)
    assert drivers(needs) == ["595.91.07-rocky9", "595.91.07-ubuntu22.04"]
    assert "GPU nodes run several systems" in needs.warnings[0]


def test_precompiled_drivers_follow_running_and_next_kernels(tmp_path: Path) -> None:
    text = "driver: {usePrecompiled: true, version: 580}"
    rhel = node("gpu-2", os=("rhel", "9.4"), kernel="5.14.0-427.13.1.el9_4.x86_64")
    found = nodes(tmp_path, node("gpu-0"), node("gpu-1", kernel="5.15.0-125-generic"), rhel)
    locked = [kernel(f"5.15.0-{abi}-generic") for abi in (125, 135, 139)]
    other = kernel("6.8.0-60-generic")
    lock = Lock(targets={"ubuntu22.04-amd64": target(*locked, other, os="ubuntu22.04")})
    settings = ClusterSettings(
        chart=known("v26.7.0"),
        values=[values_of(text)],
        nodes=found,
        kernels=[KernelRelease.parse("5.14.0-427.37.1.el9_4.x86_64")],
        known=lock.kernels_of,
    )
    needs = needs_of(settings)
    assert drivers(needs) == [
        "580-5.14.0-427.13.1.el9_4.x86_64-rhel9",
        "580-5.14.0-427.37.1.el9_4.x86_64-rhel9",
        "580-5.15.0-125-generic-ubuntu22.04",
        "580-5.15.0-131-generic-ubuntu22.04",
        "580-5.15.0-139-generic-ubuntu22.04",
    ]
    (next_boot,) = needs.images["nvcr.io/nvidia/driver:580-5.15.0-139-generic-ubuntu22.04"]
    assert "next boot" in next_boot.text
    assert next_boot.nodes == ()
    assert not [one for one in needs.warnings if "is not known" in one]


def test_the_pages_example_of_three_kernels_and_two_systems(tmp_path: Path) -> None:
    found = nodes(
        tmp_path,
        node("gpu-0"),
        node("gpu-1"),
        node("gpu-2", kernel="5.15.0-125-generic"),
        node("gpu-3", os=("rhel", "9.4"), kernel="5.14.0-427.13.1.el9_4.x86_64"),
        node("node-0", os=("debian", "12"), kernel="6.1.0-50-amd64", gpu=False),
    )
    named = [KernelRelease.parse("5.15.0-139-generic")]

    def of(text: str) -> Needs:
        values = [values_of(text)] if text else []
        return needs_of(ClusterSettings(chart=known("v26.7.0"), values=values, nodes=found, kernels=named))

    page = (CASES.parents[2] / "docs/mirror.md").read_text(encoding="utf-8")
    example = page.partition("### Three kernels and two systems")[2]
    needs = of('driver: {usePrecompiled: true, version: "580"}')
    assert drivers(needs) == sorted(re.findall(r"^\| `(580-\S+)` \|", example, re.MULTILINE))
    assert len(needs.images) == 11
    assert [one for one in needs.warnings if "the next kernel of gpu-3 is not known" in one]
    assert len(needs.warnings) == 2
    assert drivers(of("")) == sorted(re.findall(r"`(595\S+)`", example))


def test_unknown_next_kernels_are_told(tmp_path: Path) -> None:
    needs = of_values(tmp_path, "driver: {usePrecompiled: true, version: 580}")
    assert drivers(needs) == ["580-5.15.0-131-generic-ubuntu22.04"]
    assert "the next kernel of gpu-0 is not known" in needs.warnings[0]


def test_a_lock_that_has_a_nodes_series_says_what_it_boots_next(tmp_path: Path) -> None:
    def told(*releases: str) -> list[str]:
        locked = Lock(targets={"ubuntu22.04-amd64": target(*map(kernel, releases), os="ubuntu22.04")})
        values = [values_of("driver: {usePrecompiled: true, version: 580}")]
        found = nodes(tmp_path, node("gpu-0"))
        return needs_of(
            ClusterSettings(chart=known("v26.7.0"), values=values, nodes=found, known=locked.kernels_of)
        ).warnings

    # the running one is the newest
    assert told(GENERIC) == []
    assert "the next kernel of gpu-0 is not known" in told("6.8.0-60-generic")[0]


def test_a_version_that_names_a_kernel_binds_all_nodes_to_it(tmp_path: Path) -> None:
    text = f"driver: {{version: 550-{GENERIC}}}"
    needs = of_values(tmp_path, text, node("gpu-0"), node("gpu-1", kernel="5.15.0-125-generic"))
    assert drivers(needs) == [f"550-{GENERIC}-ubuntu22.04"]
    assert "gpu-1 run others" in needs.warnings[0]


def test_digests(tmp_path: Path) -> None:
    digest = "sha256:" + "a" * 64
    needs = of_values(tmp_path, f"driver: {{version: '{digest}'}}")
    assert f"nvcr.io/nvidia/driver@{digest}" in needs.images
    with pytest.raises(InputError, match="is a digest, and precompiled"):
        of_values(tmp_path, f"driver: {{usePrecompiled: true, version: '{digest}'}}")


def test_precompiled_drivers_go_without_gds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="go without gds"):
        of_values(tmp_path, "driver: {usePrecompiled: true, version: 580}\ngds: {enabled: true}")


def test_gds_has_the_systems_tag_too(tmp_path: Path) -> None:
    needs = of_values(tmp_path, "gds: {enabled: true}")
    assert "nvcr.io/nvidia/cloud-native/nvidia-fs:2.29.4-ubuntu22.04" in needs.images


def test_nodes_without_the_operators_driver_are_left_out_and_told(tmp_path: Path) -> None:
    own = node("gpu-1", os=("debian", "12"), labels={"nvidia.com/gpu.deploy.driver": "pre-installed"})
    needs = of_values(tmp_path, "", node("gpu-0"), own)
    assert drivers(needs) == ["595.91.07-ubuntu22.04"]
    assert needs.warnings == [
        "node gpu-1 has no driver of the operator's: nvidia.com/gpu.deploy.driver is pre-installed"
    ]


def test_nodes_before_feature_discovery_are_all_taken_and_known_by_their_names(tmp_path: Path) -> None:
    plain = [
        node("a", os=None, pretty="Ubuntu 24.04.2 LTS", gpu=False),
        node("b", os=None, pretty="SUSE Linux Enterprise Server 15 SP7", gpu=False),
        node("c", os=None, pretty="Red Hat Enterprise Linux 9.4 (Plow)", gpu=False),
        node("d", os=None, pretty="Debian GNU/Linux 12 (bookworm)", gpu=False),
        node("e", os=None, pretty="Red Hat Enterprise Linux CoreOS 417.94.202501 (Plow)", gpu=False),
    ]
    needs = of_values(tmp_path, "", *plain)
    systems = ["debian12", "rhcos4.17", "rhel9", "sles15.7", "ubuntu24.04"]
    assert drivers(needs) == [f"595.91.07-{system}" for system in systems]
    assert "no node has a label of a GPU" in needs.warnings[0]


def test_a_node_of_an_unknown_system_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="system of GPU nodes is not known") as caught:
        of_values(tmp_path, "", node("odd", os=None, pretty="Arch Linux"))
    assert caught.value.details == ("odd: Arch Linux",)


def policy_needs(tmp_path: Path, text: str, *documents: dict[str, Any], chart: Chart | None = None) -> Needs:
    policy, found = policies(parse_documents(text.encode(), "policy.yaml"))
    given = nodes(tmp_path, *(documents or (node("gpu-0"),)))
    return needs_of(ClusterSettings(chart=chart, policy=policy, drivers=found, nodes=given))


POLICY = """
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec:
  operator: {defaultRuntime: containerd}
  validator: {repository: r.site, image: gpu-operator, version: v26.7.0}
  driver: {enabled: DRIVER, repository: r.site, image: driver, version: 595.91.07,
    manager: {repository: r.site, image: k8s-driver-manager, version: v0.12.0}}
  toolkit: {repository: r.site, image: container-toolkit, version: v1.20.0}
  devicePlugin: {image: "r.site/plugin:v1"}
  dcgm: {enabled: false}
  dcgmExporter: {enabled: false}
  gfd: {enabled: false}
  migManager: {enabled: false}
"""


def test_a_cluster_policy_alone_and_with_its_chart(tmp_path: Path) -> None:
    text = POLICY.replace("DRIVER", "true")
    alone = policy_needs(tmp_path, text)
    assert sorted(alone.images) == [
        "r.site/container-toolkit:v1.20.0",
        "r.site/driver:595.91.07-ubuntu22.04",
        "r.site/gpu-operator:v26.7.0",
        "r.site/k8s-driver-manager:v0.12.0",
        "r.site/plugin:v1",
    ]
    assert "add --chart" in alone.warnings[0]
    with pytest.raises(InputError, match="the values: driverforge is in use"):
        policy_needs(tmp_path, text, chart=known("driverforge"))
    both = policy_needs(tmp_path, text, chart=known("v26.7.0"))
    added = set(both.images) - set(alone.images)
    assert added == {
        "nvcr.io/nvidia/gpu-operator:v26.7.0",
        "registry.k8s.io/nfd/node-feature-discovery:v0.19.0",
    }


def test_an_operand_that_is_on_by_default_and_names_no_image_is_an_error(tmp_path: Path) -> None:
    text = POLICY.replace("DRIVER", "true").replace("gfd: {enabled: false}", "gfd: {}")
    with pytest.raises(InputError, match="ClusterPolicy: gfd is in use and names no image"):
        policy_needs(tmp_path, text)


DRIVERS = """---
apiVersion: nvidia.com/v1alpha1
kind: NVIDIADriver
metadata: {name: jammy}
spec: {repository: r.site, image: driver, version: "580", usePrecompiled: true, nodeSelector: {pool: a},
  manager: {repository: r.site, image: k8s-driver-manager, version: v0.12.0}}
---
apiVersion: nvidia.com/v1alpha1
kind: NVIDIADriver
metadata: {name: rest}
spec: {repository: r.site, image: driver, version: 595.91.07,
  manager: {repository: r.site, image: k8s-driver-manager, version: v0.12.0}}
"""


def test_nvidia_drivers_share_the_nodes(tmp_path: Path) -> None:
    text = POLICY.replace("enabled: DRIVER", "useNvidiaDriverCRD: true") + DRIVERS
    rocky = node("gpu-1", os=("rocky", "9.5"), kernel="5.14.0-503.14.1.el9_5.x86_64")
    needs = policy_needs(tmp_path, text, node("gpu-0", labels={"pool": "a"}), rocky)
    assert [image for image in sorted(needs.images) if "/driver:" in image] == [
        "r.site/driver:580-5.15.0-131-generic-ubuntu22.04",
        "r.site/driver:595.91.07-rocky9",
    ]


def test_two_nvidia_drivers_for_one_node_are_refused(tmp_path: Path) -> None:
    text = POLICY.replace("enabled: DRIVER", "useNvidiaDriverCRD: true") + DRIVERS
    twice = text.replace(
        "version: 595.91.07,\n  manager", "version: 595.91.07, nodeSelector: {b: c},\n  manager", 2
    )
    with pytest.raises(InputError, match="is selected by"):
        policy_needs(tmp_path, twice, node("gpu-0", labels={"pool": "a", "b": "c"}))


def test_a_driver_left_to_objects_that_are_not_given_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="left to NVIDIADriver objects"):
        policy_needs(tmp_path, POLICY.replace("enabled: DRIVER", "useNvidiaDriverCRD: true"))


def test_the_charts_own_nvidia_driver(tmp_path: Path) -> None:
    text = "driver: {nvidiaDriverCRD: {enabled: true, nodeSelector: {pool: a}}}"
    needs = of_values(tmp_path, text, node("gpu-0", labels={"pool": "a"}), node("gpu-1", os=("debian", "12")))
    assert drivers(needs) == ["595.91.07-ubuntu22.04"]


@pytest.mark.parametrize("text", ["[]", "kind: Pod", "kind: ClusterPolicy\n---\nkind: ClusterPolicy"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(DriverforgeError):
        policies(parse_documents(text.encode(), "policy.yaml"))


@pytest.mark.parametrize("word", ["true", "yes", "on", "True"])
def test_a_switch_is_on_in_all_of_yamls_words(tmp_path: Path, word: str) -> None:
    assert "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04" in (
        of_values(tmp_path, f"dcgm: {{enabled: {word}}}").images
    )


@pytest.mark.parametrize("label", ["nvidia.com/gpu.deploy.operands", "nvidia.com/gpu.deploy.driver"])
def test_labels_that_keep_the_driver_off_a_node(tmp_path: Path, label: str) -> None:
    off = node("gpu-1", os=("debian", "12"), labels={label: "false"})
    needs = of_values(tmp_path, "", node("gpu-0"), off)
    assert drivers(needs) == ["595.91.07-ubuntu22.04"]
    assert f"node gpu-1 has no driver of the operator's: {label} is false" in needs.warnings


def test_nodes_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    assert [one.name for one in nodes(tmp_path, node("b"), node("a"))] == ["a", "b"]


@pytest.mark.parametrize("target_key", ["rhel9-amd64", "rhel9.4-amd64"])
def test_an_older_kernel_is_none_for_the_next_boot(tmp_path: Path, target_key: str) -> None:
    releases = [f"5.14.0-427.{number}.1.el9_4.x86_64" for number in (13, 20, 37)]
    lock = Lock(targets={target_key: target(*map(kernel, releases[:2]), os=target_key.partition("-")[0])})

    def listed(running: str, named: str) -> list[str]:
        settings = ClusterSettings(
            chart=known("v26.7.0"),
            values=[values_of("driver: {usePrecompiled: true, version: 580}")],
            nodes=nodes(tmp_path, node("gpu-0", os=("rhel", "9.4"), kernel=running)),
            kernels=[KernelRelease.parse(named)],
            known=lock.kernels_of,
        )
        return drivers(needs_of(settings))

    assert listed(releases[2], releases[0]) == [f"580-{releases[2]}-rhel9"]
    assert listed(releases[0], releases[0]) == [f"580-{release}-rhel9" for release in releases[:2]]


def test_openshifts_nodes_need_what_openshift_alone_needs(tmp_path: Path) -> None:
    needs = of_values(tmp_path, "", node("gpu-0", os=("rhcos", "4.17")), version="v23.9.2")
    assert "nvcr.io/nvidia/cuda:12.3.2-base-ubi8" in needs.images
    assert "driver toolkit image" in needs.warnings[0]


def test_an_image_without_a_tag_is_an_error(tmp_path: Path) -> None:
    text = POLICY.replace("DRIVER", "true").replace("r.site/plugin:v1", "r.site/plugin")
    with pytest.raises(InputError, match=r"devicePlugin: r\.site/plugin has neither tag nor digest"):
        policy_needs(tmp_path, text)


def test_a_chart_that_makes_no_nvidia_driver_leaves_it_to_yours(tmp_path: Path) -> None:
    text = "driver: {nvidiaDriverCRD: {enabled: true, deployDefaultCR: false}}"
    with pytest.raises(InputError, match="left to NVIDIADriver objects"):
        of_values(tmp_path, text)
    (_, found) = policies(parse_documents(DRIVERS.encode(), "x"))
    settings = ClusterSettings(
        chart=known("v26.7.0"),
        values=[values_of(text)],
        drivers=found[1:],
        nodes=nodes(tmp_path, node("gpu-0")),
    )
    assert "r.site/driver:595.91.07-ubuntu22.04" in needs_of(settings).images


def test_two_drivers_for_all_nodes_are_refused(tmp_path: Path) -> None:
    text = POLICY.replace("enabled: DRIVER", "useNvidiaDriverCRD: true") + DRIVERS
    with pytest.raises(InputError, match="NVIDIADriver jammy and NVIDIADriver rest are for all nodes"):
        policy_needs(tmp_path, text.replace("nodeSelector: {pool: a},", ""))


def test_a_global_registry_beside_an_umbrellas_values_is_told(tmp_path: Path) -> None:
    text = "global: {imageRegistry: mirror.site}\ngpu-operator: {dcgm: {enabled: true}}"
    (told,) = of_values(tmp_path, text).warnings
    assert told.startswith("global.imageRegistry has no effect")
