"""ClusterPolicies of guides for NVIDIA's operator, as they are written there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec, contradictions
from driverforge_operator.crd.read import read_spec
from driverforge_operator.plan.actions import Apply
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.kinds import CustomResource
from support.samples.operatorcases import policy_state

# "[Virtualization] 07. NVIDIA GPU Operator", whose page has lost the indentation
SAMPLE = """\
operator:
  defaultRuntime: containerd
driver:
  enabled: true
  version: '550.90.07'
  repository: nvcr.io/nvidia
  image: driver
toolkit:
  enabled: true
  version: v1.16.1-ubuntu20.04
devicePlugin:
  enabled: true
  version: v0.16.1
dcgm:
  enabled: true
dcgmExporter:
  enabled: true
  version: 3.3.7-3.5.0-ubuntu22.04
gfd:
  enabled: true
  version: v0.16.1
migManager:
  enabled: true
  version: v0.8.0
nodeStatusExporter:
  enabled: true
validator:
  version: v24.6.2
"""
# KubeSphere's extension, with what it tells people to set
MONITOR = """\
enabled: true
interval: 15s
honorLabels: true
additionalLabels: {}
relabelings: []
"""


def with_policy(**fields: Any) -> list[dict[str, Any]]:
    """The objects of the recorded default ClusterPolicy with other fields."""
    state = policy_state("default")
    found = state.policies["cluster-policy"]
    spec = {name: {**found.spec.get(name, {}), **value} for name, value in fields.items()}
    policy = CustomResource(metadata=found.metadata, spec={**found.spec, **spec})
    policies = {"cluster-policy": policy}
    return [dict(one.document) for one in plan(replace(state, policies=policies)) if isinstance(one, Apply)]


def test_a_guides_policy_lacks_the_one_section_that_has_to_be_there() -> None:
    """`daemonsets` is required by NVIDIA's definition, too."""
    _, problems = read_spec(ClusterPolicySpec, yaml.safe_load(SAMPLE))
    assert [str(one) for one in problems] == [
        "spec.daemonsets: has to be there; write {} for the defaults",
    ]


def test_a_guides_policy_with_that_section_is_taken() -> None:
    spec, problems = read_spec(ClusterPolicySpec, {**yaml.safe_load(SAMPLE), "daemonsets": {}})
    assert problems == ()
    assert spec is not None
    assert contradictions(spec) == ()
    assert (spec.driver.version, spec.toolkit.version) == ("550.90.07", "v1.16.1-ubuntu20.04")


@pytest.mark.parametrize("honoured", [True, False])
def test_kubespheres_monitor_of_the_exporter(honoured: bool) -> None:
    monitor = {**yaml.safe_load(MONITOR), "honorLabels": honoured}
    (found,) = (
        one
        for one in with_policy(dcgmExporter={"serviceMonitor": monitor})
        if (one["kind"], one["metadata"]["name"]) == ("ServiceMonitor", "nvidia-dcgm-exporter")
    )
    (endpoint,) = found["spec"]["endpoints"]
    assert endpoint.get("honorLabels", False) is honoured
    assert endpoint["interval"] == "15s"
