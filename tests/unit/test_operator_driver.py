"""The driver's objects: what NVIDIA's operator makes from the same resource and nodes, on whole objects.

Each difference is declared, by the number of its defect in NVIDIA's operator or by a reason, and each
declared difference has to be there.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from driverforge_core import nodekeys
from driverforge_core.osid import OsId
from driverforge_operator.crd.blocks import SideCar
from driverforge_operator.crd.nvidiadriver import NvidiaDriverSpec
from driverforge_operator.operands.configuration import Mounts
from driverforge_operator.operands.driver import DriverPool, driver_objects, startup_probe
from driverforge_operator.operands.openshiftfit import OpenShift
from driverforge_operator.plan.actions import Apply, SetStatus
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.contents import Content, Source
from driverforge_operator.state.kinds import MANAGED_BY, CustomResource
from driverforge_operator.state.observed import State
from support.samples.operatorcases import (
    CASES,
    DRIVER_CASES,
    POLICY_CASES,
    driver_state,
    policy_state,
    result,
)
from support.samples.operatordiff import differences

POD = "spec.template.spec"
AFFINITY = f"{POD}.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
DIGESTS = {
    f"{POD}.initContainers[k8s-driver-manager].env[DRIVER_CONFIG_DIGEST].value",
    f"{POD}.containers[nvidia-driver-ctr].env[DRIVER_CONFIG_DIGEST].value",
}
LIB_MODULES = {
    f"{POD}.containers[nvidia-driver-ctr].volumeMounts[lib-modules /run/host/lib/modules]",
    f"{POD}.volumes[lib-modules]",
}
EVERYWHERE = {
    AFFINITY: "defect 7: the label is nvidia-vgpu-host-manager",
}
SLES = dict.fromkeys(LIB_MODULES | DIGESTS, "defect 3: SUSE's precompiled drivers need /lib/modules")
# by the name of a DaemonSet
DECLARED = {"nvidia-gpu-driver-sles15.7-64d94ffffb": SLES}
OURS_ALONE = {
    "precompiled-arch-collision": (1, "defect 6: aarch64 has a DaemonSet, too"),
    "mixed-os-precompiled": (1, "an owner's label is ours to write: the node is claimed by who selects it"),
}
THEIRS_ALONE = {"repo-missing": (1, "defect 2: nothing is rolled out without the ConfigMap that it names")}
SAME = (
    "digest",
    "full",
    "minimal",
    "mixed-os-jit",
    "node-selector",
    "openshift-dtk",
    "openshift-precompiled",
)
ALSO_SAME = ("precompiled-digest", "precompiled-kernels", "rdma-gds-gdrcopy", "repo-cert-kmod-ubuntu")
AND_SAME = ("rhel-entitlements", "vgpu-guest", "vgpu-host")


def rendered(state: State) -> dict[str, Any]:
    """The drivers' DaemonSets; operands of a ClusterPolicy, which name no component, have another test."""
    objects = [one.document for one in plan(state) if isinstance(one, Apply) and one.ref.kind == "DaemonSet"]
    return {
        one["metadata"]["name"]: one
        for one in objects
        if "app.kubernetes.io/component" in one["metadata"]["labels"]
    }


def recorded(group: str, case: str, file: str) -> dict[str, Any]:
    found = [one for one in result(group, case, file) if one and one["kind"] == "DaemonSet"]
    for one in found:
        probe = one["spec"]["template"]["spec"]["containers"][0].get("startupProbe", {})
        # the recording's 0 is Go's way not to say it; the API server makes both 1
        if "successThreshold" in probe:
            probe["successThreshold"] = 1
    return {one["metadata"]["name"]: one for one in found}


def compared(theirs: dict[str, Any], ours: dict[str, Any]) -> set[str]:
    """Differences, leaving aside whose an object is."""
    both = copy.deepcopy((theirs, ours))
    for one in both:
        one["metadata"].pop("ownerReferences", None)
        one["metadata"].get("labels", {}).pop(MANAGED_BY, None)
    return differences(*both)


def reasons(state: State) -> set[str]:
    return {
        condition.reason
        for one in plan(state)
        if isinstance(one, SetStatus)
        for condition in one.conditions
        if condition.type == "Error" and condition.status == "True"
    }


@pytest.mark.parametrize("case", DRIVER_CASES)
def test_daemonsets_of_an_nvidiadriver(case: str) -> None:
    theirs, ours = recorded("nvidiadriver", case, "daemonsets.yaml"), rendered(driver_state(case))
    assert len(ours.keys() - theirs.keys()) == OURS_ALONE.get(case, (0, ""))[0]
    assert len(theirs.keys() - ours.keys()) == THEIRS_ALONE.get(case, (0, ""))[0]
    for name in ours.keys() & theirs.keys():
        assert compared(theirs[name], ours[name]) == EVERYWHERE.keys() | DECLARED.get(name, {}).keys(), name


def test_every_case_is_the_same_or_declared() -> None:
    declared = {*OURS_ALONE, *THEIRS_ALONE, "sles-precompiled"}
    assert sorted((*SAME, *ALSO_SAME, *AND_SAME, *declared)) == DRIVER_CASES


@pytest.mark.parametrize(
    ("case", "reason"), [("repo-missing", "ConfigurationMissing"), ("precompiled-digest", "InvalidSpec")]
)
def test_a_pool_that_cannot_be_is_told(case: str, reason: str) -> None:
    assert reasons(driver_state(case)) == {reason}


def test_variables_of_a_secret_wait_until_it_is_there() -> None:
    """A container whose `envFrom` names no Secret never starts."""
    state = driver_state("minimal")
    found = state.drivers["demo"]
    drivers = {"demo": CustomResource(metadata=found.metadata, spec={**found.spec, "secretEnv": "keys"})}
    without = replace(state, drivers=drivers)
    assert reasons(without) == {"ConfigurationMissing"}
    assert not rendered(without)
    contents = {Source(secret=True, name="keys"): Content(keys=("A",), digest="")}
    there = replace(without, around=replace(state.around, contents=contents))
    assert reasons(there) == reasons(state)
    (workload,) = rendered(there).values()
    assert containers(workload)["nvidia-driver-ctr"]["envFrom"] == [{"secretRef": {"name": "keys"}}]


# --- ClusterPolicy

BY_POLICY = {
    **EVERYWHERE,
    "metadata.annotations.nvidia.com/last-applied-hash": "server-side apply needs none",
    "apiVersion": "not recorded",
    **dict.fromkeys(
        (
            "metadata.name",
            "metadata.labels.app",
            "spec.selector.matchLabels.app",
            "spec.template.metadata.labels.app",
        ),
        "defects 1 and 24: a pool has a name of its own, and its pods are found by it",
    ),
    **dict.fromkeys(
        (
            "metadata.labels.nvidia.com/node.os-version",
            "spec.template.metadata.labels.nvidia.com/node.os-version",
            f"{POD}.nodeSelector.feature.node.kubernetes.io/system-os_release.ID",
            f"{POD}.nodeSelector.feature.node.kubernetes.io/system-os_release.VERSION_ID",
            f"{POD}.nodeSelector.feature.node.kubernetes.io/system-os_release.VERSION_ID.major",
        ),
        "defect 1: a driver is for one OS",
    ),
    **dict.fromkeys(
        (
            f"{POD}.nodeSelector.nvidia.com/gpu.present",
            "metadata.labels.nvidia.com/precompiled.kernel-version",
            "spec.template.metadata.labels.nvidia.com/precompiled.kernel-version",
            f"{POD}.containers[nvidia-driver-ctr].env[NVIDIA_VISIBLE_DEVICES]",
            f"{POD}.containers[nvidia-peermem-ctr].env[NVIDIA_VISIBLE_DEVICES]",
            f"{POD}.containers[nvidia-peermem-ctr].env",
        ),
        "as for an NVIDIADriver: one manifest for both",
    ),
}
WRONG_OS = {f"{POD}.containers[nvidia-driver-ctr].image", *DIGESTS}
NO_POLICY_DRIVER = {
    "gds-gdrcopy": "the recording's operator had the side cars' images in its environment",
    "repo-config-missing": "NVIDIA's operator makes nothing either",
}


OF_SYSTEMS = {
    "rhel9": ("rhel9",),
    "rhel9-repo-config": ("rhel9",),
    "sles15": ("sles15.7",),
    "two-os": ("rhel9", "ubuntu22.04"),
}
"""The systems of nodes with GPUs, where they are not Ubuntu 22.04."""
RIGHTS = {
    f"{kind} nvidia-driver"
    for kind in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
}
"""What NVIDIA's operator alone makes for a policy's driver: we make no rights before there is a driver."""
THEIR_OBJECTS = {
    "gds-gdrcopy": {*RIGHTS, "DaemonSet nvidia-driver-daemonset-ubuntu22.04"},
    "no-gpu-nodes": {*RIGHTS, "ConfigMap nvidia-driver-startup-probe"},
    "no-nfd": {*RIGHTS, "ConfigMap nvidia-driver-startup-probe"},
    "repo-config-missing": RIGHTS,
}


def named_in_index(case: str) -> Iterator[str]:
    """The driver's objects, of which the DaemonSet for all systems counts as one for each (defect 1)."""
    (index,) = result("clusterpolicy", case, "index.yaml")
    for line in index:
        one = line.replace(" gpu-operator/", " ")
        if one == "DaemonSet nvidia-driver-daemonset":
            yield from (f"{one}-{os}" for os in OF_SYSTEMS.get(case, ("ubuntu22.04",)))
        elif " nvidia-driver" in one:
            yield one


@pytest.mark.parametrize("case", POLICY_CASES)
def test_objects_of_a_clusterpolicys_driver(case: str) -> None:
    found = [one.ref for one in plan(policy_state(case)) if isinstance(one, Apply)]
    ours = sorted(f"{one.kind} {one.name}" for one in found if one.name.startswith("nvidia-driver"))
    assert ours == sorted(set(named_in_index(case)) - THEIR_OBJECTS.get(case, set()))


def test_what_only_nvidias_operator_makes_is_recorded() -> None:
    for case, objects in THEIR_OBJECTS.items():
        assert objects <= set(named_in_index(case))


def policy_pairs(case: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Their DaemonSets with ours of that name, or with ours for Ubuntu where theirs serves all."""
    ours, theirs = rendered(policy_state(case)), recorded("clusterpolicy", case, "objects.yaml")
    drivers = {name: one for name, one in theirs.items() if name.startswith("nvidia-driver-daemonset")}
    first = max(ours.items())[1] if ours else {}
    return [(one, ours.get(name, first)) for name, one in drivers.items()]


@pytest.mark.parametrize("case", [case for case in POLICY_CASES if case not in NO_POLICY_DRIVER])
def test_driver_of_a_clusterpolicy(case: str) -> None:
    for theirs, ours in policy_pairs(case):
        wrong = WRONG_OS if ours["metadata"]["name"].endswith("-6.8.0-60-generic-ubuntu24.04") else set()
        found = compared(theirs, ours)
        assert found <= BY_POLICY.keys() | wrong
        # the digest is the same, so that a driver that is there stays there
        assert found & DIGESTS == wrong & DIGESTS


def test_declared_differences_of_policies_are_there() -> None:
    cases = [case for case in POLICY_CASES if case not in NO_POLICY_DRIVER]
    found = {one for case in cases for pair in policy_pairs(case) for one in compared(*pair)}
    assert found == BY_POLICY.keys() | WRONG_OS


def test_each_os_has_its_own_driver() -> None:
    """Defect 1."""
    images = {
        name: one["spec"]["template"]["spec"]["containers"][0]["image"].rpartition("-")[2]
        for name, one in rendered(policy_state("two-os")).items()
    }
    assert images == {
        "nvidia-driver-daemonset-rhel9": "rhel9",
        "nvidia-driver-daemonset-ubuntu22.04": "ubuntu22.04",
    }


def test_nodes_with_other_pages_have_their_own_driver() -> None:
    """Defect 6, for a ClusterPolicy: a kernel of 64 KiB pages has the other one's name but for its end."""
    state = policy_state("precompiled")
    (node,) = list(state.nodes.values())[:1]
    kernels = ("5.14.0-503.11.1.el9_5.aarch64", "5.14.0-503.11.1.el9_5.aarch64_64k")
    nodes = {
        kernel: replace(node, name=kernel, kernel=kernel, labels={**node.labels, nodekeys.KERNEL: kernel})
        for kernel in kernels
    }
    assert {
        name: one["spec"]["template"]["spec"]["nodeSelector"][nodekeys.KERNEL]
        for name, one in rendered(replace(state, nodes=nodes)).items()
    } == {
        "nvidia-driver-daemonset-5.14.0-503.11.1.el9.5-ubuntu22.04": kernels[0],
        "nvidia-driver-daemonset-5.14.0-503.11.1.el9.5-64k-ubuntu22.04": kernels[1],
    }


def test_pods_of_one_kernel_are_found_by_its_daemonset_alone() -> None:
    """Defect 24: a pod that lost its DaemonSet is adopted by no other kernel's."""
    found = rendered(policy_state("precompiled-two-os")).values()
    assert len(found) > 1
    for one in found:
        wanted = one["spec"]["selector"]["matchLabels"].items()
        adopting = [own for own in found if wanted <= own["spec"]["template"]["metadata"]["labels"].items()]
        assert adopting == [one]


IMAGES = {
    "DRIVER_MANAGER_IMAGE": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
    "GDS_IMAGE": "nvcr.io/nvidia/cloud-native/nvidia-fs:2.29.4",
    "GDRCOPY_IMAGE": "nvcr.io/nvidia/cloud-native/gdrdrv:v2.6",
}


def test_images_that_nobody_names_come_from_the_environment() -> None:
    state = policy_state("gds-gdrcopy")
    around = replace(state.around, environment=IMAGES)
    (ours,) = rendered(replace(state, around=around)).values()
    (theirs,) = (
        one
        for name, one in recorded("clusterpolicy", "gds-gdrcopy", "objects.yaml").items()
        if name.startswith("nvidia-driver-daemonset")
    )
    found = compared(theirs, ours)
    assert not found & DIGESTS
    assert found <= BY_POLICY.keys()


def test_a_label_app_of_all_daemonsets_does_not_win() -> None:
    """Defect 15."""
    (ours,) = rendered(policy_state("daemonsets-common")).values()
    assert ours["metadata"]["labels"]["app"] == ours["metadata"]["name"]


@pytest.mark.parametrize("case", ["gds-gdrcopy", "repo-config-missing"])
def test_a_policy_that_lacks_something_says_what(case: str) -> None:
    assert not rendered(policy_state(case))
    assert reasons(policy_state(case)) <= {"InvalidSpec", "ConfigurationMissing"} != set()


# --- golden files

GOLDEN = sorted(path.stem for path in (CASES / "golden").glob("driver-*.yaml"))
RESOURCES = {"requests": {"cpu": "200m", "memory": "100Mi"}, "limits": {"cpu": "500m", "memory": "300Mi"}}
SAMPLE = Mounts(
    volumes=(
        {
            "name": "test-cm",
            "configMap": {"name": "test-cm", "items": [{"key": "test-file", "path": "test-file"}]},
        },
        *(
            {"name": name, "hostPath": {"path": f"/opt/config/{name}", "type": "DirectoryOrCreate"}}
            for name in ("test-host-path", "test-host-path-ro")
        ),
    ),
    mounts=(
        {"name": "test-cm", "mountPath": "/opt/config/test-file", "subPath": "test-file", "readOnly": True},
        {"name": "test-host-path", "mountPath": "/opt/config/test-host-path"},
        {"name": "test-host-path-ro", "mountPath": "/opt/config/test-host-path-ro", "readOnly": True},
    ),
)
LICENCE_KEYS = {
    "gridd.conf": "/drivers/gridd.conf",
    "client_configuration_token.tok": "/drivers/ClientConfigToken/client_configuration_token.tok",
}


def licence(**held: Any) -> Mounts:
    items = [{"key": key, "path": key} for key in LICENCE_KEYS]
    ((kind, found),) = held.items()
    return Mounts(
        volumes=({"name": "licensing-config", kind: {**found, "items": items}},),
        mounts=tuple(
            {"name": "licensing-config", "mountPath": path, "subPath": key}
            for key, path in LICENCE_KEYS.items()
        ),
    )


def side_car(image: str, *secrets: str) -> SideCar:
    return SideCar(
        enabled=True, image=f"nvcr.io/nvidia/cloud-native/{image}", imagePullSecrets=secrets or None
    )


DTK = OpenShift(
    version="4.13",
    toolkit=True,
    rhcos="413.92.202304252344-0",
    toolkit_image="quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:"
    "7fecaebc1d51b28bc3548171907e4d91823a031d7a6a694ab686999be2b4d867",
)
PROXIED = {
    "http_proxy": "http://user:pass@example:8080",
    "https_proxy": "https://user:pass@example:8085",
    "no_proxy": "internal.example.com",
    "authorities": True,
}
OPENSHIFT = {
    "name": "nvidia-gpu-driver-openshift-79d6bd954f",
    "account": "nvidia-gpu-driver-openshift",
    "os": OsId(id="rhel", version="8.0"),
    "openshift": OpenShift(**{name: getattr(DTK, name) for name in DTK.__slots__} | PROXIED),
}
VGPU = {"name": "nvidia-vgpu-manager-ubuntu22.04-7c6d7bd86b", "account": "nvidia-vgpu-manager-ubuntu22.04"}
"""Of each golden file: what its pool, and its spec, have that the minimal one has not."""
INPUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "driver-minimal": ({}, {}),
    "driver-hostnetwork": ({}, {"hostNetwork": True}),
    "driver-additional-configs": ({"mounts": SAMPLE}, {}),
    "driver-rdma": ({"mounts": SAMPLE}, {"rdma": {"enabled": True}}),
    "driver-rdma-hostmofed": ({"mounts": SAMPLE}, {"rdma": {"enabled": True, "useHostMofed": True}}),
    "driver-gds": ({"mounts": SAMPLE}, {"gds": side_car("nvidia-fs:2.16.1", "ngc-secrets")}),
    "driver-gdrcopy": ({"mounts": SAMPLE}, {"gdrcopy": side_car("gdrdrv:v2.4.1", "ngc-secrets")}),
    "driver-gdrcopy-openshift": (
        {**OPENSHIFT, "mounts": SAMPLE},
        {"image": "nvcr.io/nvidia/driver:525.85.03-rhel8.0"}
        | {"gdrcopy": side_car("gdrdrv:v2.4.1-rhcos4.13", "ngc-secret")},
    ),
    "driver-openshift-drivertoolkit": (OPENSHIFT, {"image": "nvcr.io/nvidia/driver:525.85.03-rhel8.0"}),
    "driver-precompiled": (
        {
            "name": "nvidia-gpu-driver-ubuntu22.04-646cdfdb96",
            "kernel": "5.4.0-150-generic",
            "precompiled": True,
            "selector": {nodekeys.KERNEL: "5.4.0-150-generic"},
        },
        {
            "image": "nvcr.io/nvidia/driver:535-5.4.0-150-generic-ubuntu22.04",
            "startupProbe": {"initialDelaySeconds": 60},
        },
    ),
    "driver-full-spec": (
        {"selector": {"example.com/foo": "foo", "example.com/bar": "bar"}},
        {
            "driverType": "",
            "kernelModuleType": "open",
            "imagePullPolicy": "Always",
            "imagePullSecrets": ["secret-a", "secret-b"],
            "resources": {**RESOURCES, "limits": {"cpu": "500m", "memory": "200Mi"}},
            "args": ["--foo", "--bar"],
            "env": [{"name": "FOO", "value": "foo"}, {"name": "BAR", "value": "bar"}],
            "labels": {
                "custom-label-1": "custom-value-1",
                "custom-label-2": "custom-value-2",
                "app": "no",
                "app.kubernetes.io/part-of": "no",
            },
            "annotations": {"custom-annotation-1": "custom-value-1", "custom-annotation-2": "custom-value-2"},
            "tolerations": [{"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule"}],
            "priorityClassName": "custom-priority-class-name",
            "manager": {
                "image": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:devel",
                "imagePullPolicy": "Always",
                "imagePullSecrets": ["manager-secret"],
                "env": [{"name": "FOO", "value": "foo"}, {"name": "BAR", "value": "bar"}],
            },
        },
    ),
    "driver-vgpu-host-manager": (
        VGPU,
        {"driverType": "vgpu-host-manager", "image": "nvcr.io/nvidia/vgpu-manager:525.85.03-ubuntu22.04"},
    ),
    "driver-vgpu-host-manager-openshift": (
        {
            "name": "nvidia-vgpu-manager-openshift-7c6d7bd86b",
            "account": "nvidia-vgpu-manager-openshift",
            "os": OPENSHIFT["os"],
            "openshift": DTK,
        },
        {"driverType": "vgpu-host-manager", "image": "nvcr.io/nvidia/vgpu-manager:525.85.03-rhel8.0"},
    ),
    "driver-vgpu-licensing": ({"mounts": licence(configMap={"name": "licensing-config-configmap"})}, {}),
    "driver-vgpu-licensing-secret": (
        {"mounts": licence(secret={"secretName": "licensing-config-secret"})},
        {"licensingConfig": {"secretName": "licensing-config-secret", "nlsEnabled": True}},
    ),
    "driver-secret-env": (
        {},
        {
            "secretEnv": "test-secret-env",
            "gds": side_car("nvidia-fs:2.16.1"),
            "gdrcopy": side_car("gdrdrv:v2.4.1"),
        },
    ),
}
IN_GOLDEN = {
    AFFINITY: EVERYWHERE[AFFINITY],
    f"{POD}.nodeSelector.nvidia.com/gpu.present": "the recording has no pool's selector, which names it",
    f"{POD}.containers[nvidia-driver-ctr].env[KERNEL_MODULE_TYPE]": "no resource can be without",
}
OS_IN_NO_TAG = dict.fromkeys(
    (
        "metadata.labels.nvidia.com/node.os-version",
        "spec.template.metadata.labels.nvidia.com/node.os-version",
    ),
    "rhel8.0 in its input is no OS of a tag",
)
OF_KINDS = {
    "ConfigMap nvidia-driver-startup-probe": {
        "data.startup-probe.sh": "the same steps in our words",
        "metadata.labels.app": "defect 8: no pool owns it",
        "metadata.labels.app.kubernetes.io/component": "defect 8: of a vGPU host it has another",
    },
    "ConfigMap gpu-operator-trusted-ca": {"data": "OpenShift writes it, and would be written over"},
    "SecurityContextConstraints": {
        "metadata.annotations.kubernetes.io/description": "the same in our words",
    },
}


def golden_pool(name: str) -> DriverPool:
    found, written = INPUTS[name]
    spec = NvidiaDriverSpec.model_validate_json(
        json.dumps(
            {
                "driverType": "gpu",
                "image": "nvcr.io/nvidia/driver:525.85.03-ubuntu22.04",
                "manager": {"image": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:devel"},
                "resources": RESOURCES,
                **{key: value for key, value in written.items() if key not in ("gds", "gdrcopy") and value},
            }
        )
    )
    empty = {"driver_type": written.get("driverType", "gpu")}
    if "kernelModuleType" not in written:
        empty["kernel_module_type"] = ""
    given = {key: value for key, value in written.items() if key in ("gds", "gdrcopy")}
    return DriverPool(
        **{
            "namespace": "test-operator",
            "name": "nvidia-gpu-driver-ubuntu22.04-7c6d7bd86b",
            "account": "nvidia-gpu-driver-ubuntu22.04",
            "owner": None,
            "os": OsId(id="ubuntu", version="22.04"),
            "kernel": "",
            "precompiled": False,
            "selector": {},
            "host_root": "",
            "spec": spec.model_copy(update=empty | given),
            **found,
        }
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files(name: str) -> None:
    def by_name(objects: Any) -> dict[str, Any]:
        return {f"{one['kind']} {one['metadata']['name']}": one for one in objects if one}

    theirs = by_name(yaml.safe_load_all((CASES / "golden" / f"{name}.yaml").read_text()))
    ours = by_name([*driver_objects(golden_pool(name)), *startup_probe("test-operator")])
    # a vGPU host's mounts are the same, though its pods never start this probe
    assert ours.keys() - theirs.keys() <= {"ConfigMap nvidia-driver-startup-probe"}
    assert not theirs.keys() - ours.keys()
    for key in theirs:
        declared = {*IN_GOLDEN, *OF_KINDS.get(key, {}), *OF_KINDS.get(key.partition(" ")[0], {})}
        declared |= OS_IN_NO_TAG.keys() if "openshift" in name else set()
        assert compared(theirs[key], ours[key]) <= declared, key


def test_every_golden_file_has_its_input() -> None:
    assert sorted(INPUTS) == GOLDEN


def changed(case: str, **spec: Any) -> dict[str, Any]:
    """The one DaemonSet of a case whose NVIDIADriver says more."""
    state = driver_state(case)
    found = state.drivers["demo"]
    more = CustomResource(metadata=found.metadata, spec={**found.spec, **spec})
    (workload,) = rendered(replace(state, drivers={"demo": more})).values()
    return workload


def containers(workload: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in workload["spec"]["template"]["spec"]["containers"]}


def test_probes_affinity_and_arguments_have_effect() -> None:
    """Defect 4."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    gds = {"enabled": True, "image": "r.example/fs:1", "args": ["x"], "imagePullPolicy": "Always"}
    workload = changed(
        "minimal", livenessProbe={"periodSeconds": 7}, readinessProbe={}, nodeAffinity=affinity, gds=gds
    )
    driver, fs = containers(workload)["nvidia-driver-ctr"], containers(workload)["nvidia-fs-ctr"]
    assert driver["livenessProbe"] == {"exec": driver["startupProbe"]["exec"], "periodSeconds": 7}
    assert workload["spec"]["template"]["spec"]["affinity"]["nodeAffinity"] == affinity
    assert (fs["args"], fs["imagePullPolicy"]) == (["x"], "Always")


def test_a_policys_probe_is_a_probe() -> None:
    """Defect 5: such a policy ends NVIDIA's operator."""
    state = policy_state("default")
    found = state.policies["cluster-policy"]
    spec = {**found.spec, "driver": {**found.spec["driver"], "livenessProbe": {"periodSeconds": 7}}}
    policies = {"cluster-policy": CustomResource(metadata=found.metadata, spec=spec)}
    (workload,) = rendered(replace(state, policies=policies)).values()
    assert containers(workload)["nvidia-driver-ctr"]["livenessProbe"]["periodSeconds"] == 7


def test_a_configmap_with_dots_has_a_volume() -> None:
    """Defect 10: a volume's name has none."""
    state = driver_state("repo-missing")
    found = state.drivers["demo"]
    spec = {**found.spec, "repoConfig": {"name": "site.repos"}}
    contents = {Source(secret=False, name="site.repos"): Content(keys=("a.list",), digest="")}
    drivers = {"demo": CustomResource(metadata=found.metadata, spec=spec)}
    around = replace(state.around, contents=contents)
    (workload,) = rendered(replace(state, drivers=drivers, around=around)).values()
    volume = workload["spec"]["template"]["spec"]["volumes"][-1]
    assert (volume["name"], volume["configMap"]["name"]) == ("site-repos", "site.repos")


@pytest.mark.parametrize(
    ("spec", "source"),
    [
        ({"repoConfig": {"name": "held"}}, Source(secret=False, name="held")),
        ({"licensingConfig": {"name": "held"}}, Source(secret=False, name="held")),
        ({"licensingConfig": {"secretName": "held"}}, Source(secret=True, name="held")),
        ({"secretEnv": "held"}, Source(secret=True, name="held")),
    ],
    ids=["repoConfig", "licensingConfig", "licensingConfig.secretName", "secretEnv"],
)
def test_sources_that_hold_something_else_make_another_digest(spec: dict[str, Any], source: Source) -> None:
    """Defect 23. What the other kind of source holds under that name does not count."""
    state = driver_state("minimal")
    found = state.drivers["demo"]
    drivers = {"demo": CustomResource(metadata=found.metadata, spec={**found.spec, **spec})}
    other = replace(source, secret=not source.secret)

    def digest(content: str, beside: str = "") -> str:
        contents = {
            source: Content(keys=("custom.list",), digest=content),
            other: Content(keys=("custom.list",), digest=beside),
        }
        around = replace(state.around, contents=contents)
        (workload,) = rendered(replace(state, drivers=drivers, around=around)).values()
        env = workload["spec"]["template"]["spec"]["containers"][0]["env"]
        return next(one["value"] for one in env if one["name"] == "DRIVER_CONFIG_DIGEST")

    assert len({digest(""), digest("a"), digest("b")}) == 3
    assert digest("a", "b") == digest("a")
