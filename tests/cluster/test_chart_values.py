"""The chart against values of others: NVIDIA's chart, a user's mirror, commands that guides tell people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from driverforge_core import nodekeys
from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec
from driverforge_operator.crd.nvidiadriver import NvidiaDriverSpec
from driverforge_operator.crd.read import read_spec
from support.cluster.operator import COMMAND, ROOT
from support.helm import CHART, IMAGE, Helm, with_chart
from support.process import run
from support.skipping import provided
from support.upstream import helm as helm_program

# Helm may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

CASES = Path(__file__).parents[1] / "cases"
CHARTS = CASES / "charts"
VALUES = {
    "v1.11.1": CHARTS / "gpu-operator-v1.11.1/values.yaml",
    "v24.6.1": CHARTS / "values-v24.6.1.yaml",
    "v25.10": CHARTS / "values-v25.10-main.yaml",
    "v26.7": CHARTS / "values-v26.7-by-hand.yaml",
}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return with_chart(provided(helm_program.program), tmp_path_factory.mktemp("chart"))


def one_of(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def recorded_policy() -> dict[str, Any]:
    """The spec that NVIDIA's chart v26.7.0 makes of its defaults, without what ours leaves out."""
    wanted: dict[str, Any] = yaml.safe_load((CASES / "operator/base.yaml").read_text())
    # NVIDIA's chart marks all pods with its own name
    del wanted["daemonsets"]["labels"]
    # deprecated, without effect
    del wanted["operator"]["defaultRuntime"]
    return wanted


def test_defaults_are_the_policy_of_nvidias_chart(helm: Helm) -> None:
    wanted = recorded_policy()
    # empty is as good as not written
    del wanted["migManager"]["config"]["name"]
    # what is switched off is not described; the recorded cases switch it on
    wanted["dcgm"] = {"enabled": False}
    for sandbox in ("vgpuManager", "vgpuDeviceManager", "vfioManager", "ccManager"):
        del wanted[sandbox]
    for plugin in ("sandboxDevicePlugin", "kataSandboxDevicePlugin"):
        del wanted[plugin]
    assert one_of(helm.objects(), "ClusterPolicy")["spec"] == wanted


def test_a_section_that_is_missing_is_as_the_chart_has_it(helm: Helm) -> None:
    """A user may set one to null; with `--reuse-values` an upgrade has none that its values do not know."""
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    sections = [name for name, value in given.items() if isinstance(value, dict) and name != "driverforge"]
    parts = [f"driverforge.{name}" for name in given["driverforge"] if name != "image"]
    everything = helm.objects(*(f"{name}=null" for name in (*sections, *parts)))
    assert {one["kind"] for one in everything} >= {"Deployment", "ClusterPolicy", "Job", "Service"}
    inner = [
        f"{name}.{key}" for name in sections for key, one in given[name].items() if isinstance(one, dict)
    ]
    metrics = [f"driverforge.metrics.{name}" for name in given["driverforge"]["metrics"]]
    spec = one_of(helm.objects(*(f"{name}=null" for name in (*inner, *metrics))), "ClusterPolicy")["spec"]
    assert spec["driver"]["version"] == given["driver"]["version"]


@pytest.mark.full(reason="Helm runs for each section")
def test_each_section_may_be_missing_alone(helm: Helm) -> None:
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    for name in given:
        if name != "driverforge":
            assert one_of(helm.objects(f"{name}=null"), "Deployment")


def test_what_templates_read_is_what_the_values_say() -> None:
    template = (CHART / "templates/_sections.tpl").read_text()
    _, _, rest = template.partition('define "driverforge.read" -}}')
    read = yaml.safe_load(rest.partition("{{- end -}}")[0])
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [text(place) for place, one in leaves(read, ()) if at(values, place) != one] == []


@pytest.mark.parametrize("version", VALUES)
def test_values_of_nvidias_charts_arrive_in_the_policy(helm: Helm, version: str) -> None:
    given = yaml.safe_load(VALUES[version].read_text())
    spec = one_of(helm.objects(files=[VALUES[version]]), "ClusterPolicy")["spec"]
    _, problems = read_spec(ClusterPolicySpec, spec)
    assert problems == ()
    known = ClusterPolicySpec.model_json_schema(by_alias=True)
    sections = [name for name in given if name in known["properties"]]
    assert {"driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd"} <= set(sections)
    told = lost(helm, VALUES[version])
    for name in sections:
        for place, value in leaves(given[name], (name,)):
            path = text(place)
            if path.startswith(NOT_IN_POLICY) or any(path.startswith(one) for one in told):
                continue
            there = tuple("podDeletion" if part == "gpuPodDeletion" else part for part in place)
            assert str(at(spec, there)) == str(value), path


def test_values_of_v26_7_make_the_policy_that_its_chart_made(helm: Helm) -> None:
    spec = one_of(helm.objects(files=[VALUES["v26.7"]]), "ClusterPolicy")["spec"]
    recorded = list(leaves(recorded_policy(), ()))
    assert [(place, at(spec, place)) for place, _ in recorded] == recorded


# of the operator's Deployment, of ConfigMaps, and of the NVIDIADriver
NOT_IN_POLICY = (
    *(
        f"operator.{key}"
        for key in ("priorityClassName", "upgradeCRD", "cleanupCRD", "tolerations", "affinity", "annotations")
    ),
    "operator.resources",
    "driver.nvidiaDriverCRD",
    "devicePlugin.config.create",
    "migManager.config.create",
    "dcgmExporter.config.create",
)


Place = tuple[str | int, ...]


def leaves(value: Any, place: Place) -> list[tuple[Place, Any]]:
    """Each scalar that says something, with its place."""
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in leaves(one, (*place, key))]
    if isinstance(value, list):
        return [leaf for index, one in enumerate(value) for leaf in leaves(one, (*place, index))]
    return [] if value in ("", None) else [(place, value)]


def text(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)[1:]


def at(spec: Any, place: Place) -> Any:
    for part in place:
        spec = spec[part]
    return spec


def lost(helm: Helm, *files: Path, settings: tuple[str, ...] = ()) -> list[str]:
    """What the notes of an installation list."""
    named = [word for path in files for word in ("--values", str(path))]
    some = ("nfd.enabled=false", f"driverforge.image={IMAGE}", *settings)
    said = helm(
        "install", "x", str(helm.chart), "--dry-run=client", *named, *(w for s in some for w in ("--set", s))
    ).stdout
    _, found, listed = said.partition("These values have no effect here:\n")
    lines = listed.splitlines() if found else []
    return [line.strip() for line in lines[: next((i for i, x in enumerate(lines) if x[:1] != " "), None)]]


def test_what_has_no_effect_is_listed(helm: Helm) -> None:
    told = lost(
        helm, settings=("operator.logging.level=debug", "driver.colour=green", "draDriver.version=v1")
    )
    assert told == ["draDriver.version", "driver.colour", "operator.logging"]
    assert lost(helm) == []
    assert lost(helm, settings=("nfd.enabled=true",)) == []
    told = lost(
        helm,
        settings=(
            "nfd.nodefeaturerules=true",
            "platform.openshift=true",
            # what the chart itself writes into that field
            "driver.useNvidiaDriverCRD=true",
            "clusterPolicy.colour=green",
        ),
    )
    assert told == [
        "clusterPolicy.colour",
        "driver.useNvidiaDriverCRD",
        "nfd.nodefeaturerules",
        "platform.openshift",
    ]
    told = lost(helm, VALUES["v25.10"])
    assert {"operator.repository", "operator.image", "operator.initContainer"} <= set(told)
    assert not [path for path in told if path.startswith(("driver.", "toolkit.", "daemonsets."))]
    assert lost(helm, VALUES["v26.7"]) == [
        "draDriver.computeDomains",
        "draDriver.image",
        "draDriver.imagePullPolicy",
        "draDriver.repository",
        "draDriver.version",
        "kataManager",
        "operator.image",
        "operator.imagePullPolicy",
        "operator.logging",
        "operator.repository",
    ]


def test_a_mirrors_values_name_its_registry(helm: Helm, tmp_path: Path) -> None:
    given = yaml.safe_load((CHARTS / "kubesphere-mirror.yaml").read_text())["gpu-operator"]
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(given))
    spec = one_of(helm.objects(files=[values]), "ClusterPolicy")["spec"]
    assert spec["driver"]["repository"] == "dockerhub.kubekey.local/kse/nvidia"
    assert spec["driver"]["version"] == "550-5.15.0-131-generic"
    assert spec["driver"]["manager"]["repository"] == "dockerhub.kubekey.local/kse/nvidia/cloud-native"


@pytest.mark.parametrize(
    ("settings", "path", "value"),
    [
        (["driver.enabled=false"], "driver.enabled", False),
        (["driver.enabled=false", "toolkit.enabled=false"], "toolkit.enabled", False),
        (["toolkit.version=v1.16.1-ubi8"], "toolkit.version", "v1.16.1-ubi8"),
        (["mig.strategy=mixed"], "mig.strategy", "mixed"),
        (["driver.version=550.90.07", "toolkit.version=v1.16.1-ubuntu20.04"], "driver.version", "550.90.07"),
        # without quotes a branch is a number
        (["driver.version=580", "driver.usePrecompiled=true"], "driver.version", "580"),
        (["driver.upgradePolicy.gpuPodDeletion.force=true"], "driver.upgradePolicy.podDeletion.force", True),
        # a choice of its own: no layout where a node names none
        (["migManager.config.default="], "migManager.config.default", ""),
        (
            ["dcgmExporter.serviceMonitor.enabled=true", "dcgmExporter.serviceMonitor.honorLabels=true"],
            "dcgmExporter.serviceMonitor.honorLabels",
            True,
        ),
    ],
)
def test_commands_of_guides_work(helm: Helm, settings: list[str], path: str, value: object) -> None:
    spec = one_of(helm.objects(*settings), "ClusterPolicy")["spec"]
    assert at(spec, tuple(path.split("."))) == value
    assert read_spec(ClusterPolicySpec, spec)[1] == ()


def test_the_default_driver_has_the_same_settings(helm: Helm, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    driver = {
        "nvidiaDriverCRD": {"enabled": True},
        "repoConfig": {"configMapName": "repos"},
        "certConfig": {"name": "certs"},
        "licensingConfig": {"secretName": "licence", "nlsEnabled": False},
        "virtualTopology": {"config": "topology"},
        "kernelModuleConfig": {"name": "modules"},
        "version": 580,
        "env": [{"name": "COUNT", "value": 5}],
    }
    values.write_text(yaml.safe_dump({"driver": driver, "gdrcopy": {"enabled": True, "version": "v2.6"}}))
    objects = helm.objects(files=[values])
    assert one_of(objects, "ClusterPolicy")["spec"]["driver"]["useNvidiaDriverCRD"] is True
    spec = one_of(objects, "NVIDIADriver")["spec"]
    _, problems = read_spec(NvidiaDriverSpec, spec)
    assert problems == ()
    assert spec == {
        "default": True,
        "driverType": "gpu",
        "repository": "nvcr.io/nvidia",
        "image": "driver",
        "version": "580",
        "imagePullPolicy": "IfNotPresent",
        "kernelModuleType": "auto",
        "usePrecompiled": False,
        "manager": {
            "repository": "nvcr.io/nvidia/cloud-native",
            "image": "k8s-driver-manager",
            "version": "v0.12.0",
            "imagePullPolicy": "IfNotPresent",
        },
        "startupProbe": {
            "initialDelaySeconds": 60,
            "periodSeconds": 10,
            "timeoutSeconds": 60,
            "failureThreshold": 120,
        },
        "rdma": {"enabled": False, "useHostMofed": False},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "repoConfig": {"name": "repos"},
        "certConfig": {"name": "certs"},
        "licensingConfig": {"secretName": "licence", "nlsEnabled": False},
        "virtualTopologyConfig": {"name": "topology"},
        "kernelModuleConfig": {"name": "modules"},
        "gdrcopy": {"enabled": True, "version": "v2.6"},
        "env": [{"name": "COUNT", "value": "5"}],
    }


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("cdi.enabled=false,cdi.nriPluginEnabled=true", "cdi.enabled=true"),
        ("toolkit.enabled=false,cdi.nriPluginEnabled=true", "toolkit.enabled=true"),
        ("devicePlugin.config.create=true", "devicePlugin.config.name"),
        ("devicePlugin.config.create=true,devicePlugin.config.name=a", "devicePlugin.config.data"),
        ("gpuCluster.deployCR=true", "GPUCluster"),
        ("driverforge.colour=green", "additional properties 'colour' not allowed"),
        ("driver.version=580", "driverforge.image is not set"),
        ("driverforge.env[0].name=OPERATOR_NAMESPACE", "leave OPERATOR_NAMESPACE out"),
        ("driverforge.env[0].name=SSL_CERT_FILE,driverforge.caConfigMap.name=x", "leave SSL_CERT_FILE out"),
        ("driverforge.env[0].name=A,driverforge.env[1].value=x", "driverforge.env[1] has no name"),
        ("driverforge.env[0].name=,driverforge.env[0].value=x", "driverforge.env[0] has no name"),
        (
            "driverforge.env[0].name=A,driverforge.env[1].name=B,driverforge.env[2].name=A",
            "driverforge.env: A stands there twice",
        ),
        ("driverforge.caConfigMap.name=x,driverforge.caConfigMap.key=", "driverforge.caConfigMap.key: give"),
    ],
)
def test_what_cannot_work_is_refused_with_the_way_out(helm: Helm, setting: str, words: str) -> None:
    assert words in helm.refusal(setting)


def test_the_operator_gets_variables_and_authorities_of_the_values(helm: Helm, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    secret = {"secretKeyRef": {"name": "proxy", "key": "url"}}
    given = [
        {"name": "DRIVER_IMAGE", "value": "registry.example.com/nvidia/driver:580.95.05"},
        {"name": "COUNT", "value": 5},
        {"name": "HTTPS_PROXY", "valueFrom": secret},
        {"name": "NO_PROXY", "value": "$(KUBERNETES_SERVICE_HOST)"},
        {"name": "EMPTY", "value": ""},
        {"name": "BARE"},
    ]
    # a value that a template of one's own left out
    nothing = {"name": "NOTHING", "value": None}
    ours = {"env": [*given, nothing], "caConfigMap": {"name": "site-authorities", "key": "bundle.pem"}}
    values.write_text(yaml.safe_dump({"driverforge": ours}))
    objects = helm.objects(files=[values])
    pod = one_of(objects, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    namespace, authorities, *others = container["env"]
    assert namespace["name"] == "OPERATOR_NAMESPACE"
    (mount,) = container["volumeMounts"]
    assert authorities == {"name": "SSL_CERT_FILE", "value": f"{mount['mountPath']}/bundle.pem"}
    assert others == [given[0], {"name": "COUNT", "value": "5"}, *given[2:], {"name": "NOTHING"}]
    assert pod["volumes"] == [{"name": mount["name"], "configMap": {"name": "site-authorities"}}]
    # a hook may run when what they point at is gone
    jobs = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Job"]
    assert {one["name"] for job in jobs for one in job["containers"][0]["env"]} == {"OPERATOR_NAMESPACE"}
    assert not [job for job in jobs if "volumes" in job]


def test_without_authorities_the_operator_has_those_of_its_image_or_of_its_variables(helm: Helm) -> None:
    for settings, others in ([], []), (["driverforge.env[0].name=SSL_CERT_FILE"], ["SSL_CERT_FILE"]):
        pod = one_of(helm.objects(*settings), "Deployment")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert [one["name"] for one in container["env"]] == ["OPERATOR_NAMESPACE", *others]
        assert "volumeMounts" not in container
        assert "volumes" not in pod


def test_a_config_map_of_authorities_may_have_a_number_as_its_name(helm: Helm) -> None:
    made = helm.objects("driverforge.caConfigMap.name=20260101,driverforge.caConfigMap.key=7")
    pod = one_of(made, "Deployment")["spec"]["template"]["spec"]
    assert [one["configMap"] for one in pod["volumes"]] == [{"name": "20260101"}]
    assert pod["containers"][0]["env"][1]["value"].endswith("/7")


@pytest.mark.parametrize("name", VALUES)
def test_the_schema_takes_values_of_nvidias_charts(name: str) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    given = yaml.safe_load(VALUES[name].read_text())
    jsonschema.validate({**given, "driverforge": {}}, schema)


def test_a_config_map_is_made_of_values(helm: Helm, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    config = {"create": True, "name": "time-slicing", "default": "any", "data": {"any": "version: v1\n"}}
    values.write_text(yaml.safe_dump({"devicePlugin": {"config": config}}))
    objects = helm.objects(files=[values])
    assert one_of(objects, "ConfigMap")["data"] == config["data"]
    plugin = one_of(objects, "ClusterPolicy")["spec"]["devicePlugin"]
    assert plugin["config"] == {"name": "time-slicing", "default": "any"}


def test_the_node_policy_needs_a_server_that_knows_nodes(helm: Helm) -> None:
    policy = "ValidatingAdmissionPolicy"
    assert policy not in {one["kind"] for one in helm.objects(kube="1.31.0")}
    assert policy in {one["kind"] for one in helm.objects(kube="1.32.0")}
    assert policy not in {one["kind"] for one in helm.objects("driverforge.nodePolicy.enabled=false")}


def test_the_chart_is_sound(helm: Helm) -> None:
    said = helm("lint", str(helm.chart), "--strict", "--set", f"driverforge.image={IMAGE}")
    assert "0 chart(s) failed" in said.stdout


def test_the_ready_taint_is_off_unless_it_is_asked_for(helm: Helm) -> None:
    def asked(*values: str) -> object:
        (policy,) = (one for one in helm.objects(*values) if one["kind"] == "ClusterPolicy")
        return policy["metadata"].get("annotations")

    assert asked() is None
    assert asked("driverforge.readyTaint.enabled=true") == {nodekeys.READY_TAINT: "true"}


def test_another_version_of_the_chart_makes_no_pod_anew(helm: Helm) -> None:
    """Defect 17."""
    (policy,) = (one for one in helm.objects() if one["kind"] == "ClusterPolicy")
    assert "helm.sh/chart" in policy["metadata"]["labels"]
    assert "helm.sh/chart" not in json.dumps(policy["spec"])


def test_the_hook_brings_every_definition_that_the_chart_has(helm: Helm) -> None:
    """Defect 13: that of upstream's chart leaves two out, which then stay as they were installed."""
    objects = helm.objects(crds=True)
    installed = {one["metadata"]["name"] for one in objects if one["kind"] == "CustomResourceDefinition"}
    (rules,) = (
        one["rules"]
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "driverforge-upgrade-crds")
    )
    (may,) = (set(rule["resourceNames"]) for rule in rules if "patch" in rule["verbs"])
    printed = run(*COMMAND, "crds", env={"PYTHONPATH": str(ROOT / "entrypoints")}).stdout
    assert installed
    assert installed == may == {one["metadata"]["name"] for one in yaml.safe_load_all(printed)}
