"""charts/driverforge/crds given to a real API server: what it takes, keeps and refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from driverforge_operator.plan.whole import covers
from support.cluster.kubernetes import Answer, Api
from support.cluster.operator import establish
from support.samples.operatorcases import DRIVER_CASES, POLICY_CASES, driver_spec, policy_spec

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module", autouse=True)
def established(api: Api) -> None:
    establish(api)


def policy(spec: dict[str, Any]) -> str:
    return json.dumps(
        {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "cluster-policy"},
            "spec": spec,
        }
    )


def driver(spec: dict[str, Any], name: str = "demo") -> str:
    return json.dumps(
        {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "NVIDIADriver",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def everything_kept(answer: Answer, spec: dict[str, Any]) -> bool:
    """Whether the server took each field, and gave it back."""
    assert answer.ok, answer.message
    return covers(answer.body["spec"], spec)


REFUSED = {"precompiled-digest": "write the driver's branch"}
"""What upstream stores, and refuses later, in its log."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_upstream_refuses_late_is_refused_at_once(api: Api, case: str) -> None:
    assert REFUSED[case] in api.apply(driver(driver_spec(case)), dry_run=True).message


@pytest.mark.parametrize("case", POLICY_CASES)
def test_every_clusterpolicy_of_upstream_is_kept_whole(api: Api, case: str) -> None:
    assert everything_kept(api.apply(policy(policy_spec(case)), dry_run=True), policy_spec(case))


@pytest.mark.parametrize("case", [case for case in DRIVER_CASES if case not in REFUSED])
def test_every_nvidiadriver_of_upstream_is_kept_whole(api: Api, case: str) -> None:
    assert everything_kept(api.apply(driver(driver_spec(case)), dry_run=True), driver_spec(case))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"imagee": "x"}, ".spec.imagee: field not declared in schema"),
        ({"driverType": "x"}, 'Unsupported value: "x"'),
        ({"default": True, "nodeSelector": {"a": "b"}}, "leave out nodeSelector, or default"),
        ({"nodeSelector": {"nvidia.com/gpu-operator.driver.owner": "x"}}, "use another label"),
        ({"usePrecompiled": True, "gds": {"enabled": True}}, "precompiled drivers have no GDS"),
        ({"usePrecompiled": True, "version": "sha256:aa"}, "write the driver's branch"),
        ({"startupProbe": {"periodSeconds": 0}}, "greater than or equal to 1"),
    ],
)
def test_a_contradiction_is_refused_at_once(api: Api, change: dict[str, Any], words: str) -> None:
    answer = api.apply(driver({**driver_spec("minimal"), **change}), dry_run=True)
    assert not answer.ok
    assert words in answer.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cdi": {"enabled": False, "nriPluginEnabled": True}}, "write spec.cdi.enabled: true"),
        ({"cdi": {"nriPluginEnabled": True}, "toolkit": {"enabled": False}}, "spec.toolkit.enabled: true"),
    ],
)
def test_nri_needs_cdi_and_the_toolkit(api: Api, change: dict[str, Any], words: str) -> None:
    answer = api.apply(policy({**policy_spec("default"), **change}), dry_run=True)
    assert not answer.ok
    assert words in answer.message


def test_the_kind_of_a_driver_cannot_change(api: Api) -> None:
    assert api.apply(driver(driver_spec("minimal"), "steady")).ok
    answer = api.apply(driver({**driver_spec("minimal"), "driverType": "vgpu"}, "steady"))
    assert "driverType cannot change" in answer.message
    assert api.request("DELETE", "/apis/nvidia.com/v1alpha1/nvidiadrivers/steady").ok


def test_defaults_are_the_published_ones(api: Api) -> None:
    stored = api.apply(driver({}), dry_run=True).body["spec"]
    assert stored == {
        "driverType": "gpu",
        "default": False,
        "image": "nvcr.io/nvidia/driver",
        "kernelModuleType": "auto",
    }
