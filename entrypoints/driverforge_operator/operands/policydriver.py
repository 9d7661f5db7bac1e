"""A ClusterPolicy's driver, as the NVIDIADriver that it would be."""

from __future__ import annotations

from driverforge_operator.crd.blocks import Named
from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec
from driverforge_operator.crd.kubernetes import EnvVar
from driverforge_operator.crd.nvidiadriver import Licensing, NvidiaDriverSpec

_SAME = (
    "repository",
    "image",
    "version",
    "image_pull_policy",
    "image_pull_secrets",
    "resources",
    "args",
    "env",
    "host_network",
    "use_precompiled",
    "kernel_module_type",
    "startup_probe",
    "liveness_probe",
    "readiness_probe",
    "rdma",
    "manager",
    "cert_config",
    "kernel_module_config",
    "secret_env",
)


def as_driver(policy: ClusterPolicySpec) -> NvidiaDriverSpec:
    """What its `driver`, `gds`, `gdrcopy` and `daemonsets` say, in the other resource's words."""
    driver, common = policy.driver, policy.daemonsets
    licence, topology, repositories = driver.licensing_config, driver.virtual_topology, driver.repo_config
    root = host_root(policy)
    found = {name: getattr(driver, name) for name in _SAME}
    if root != "/":
        found["env"] = (EnvVar(name="HOST_ROOT", value=root), *(driver.env or ()))
        manager = driver.manager
        if manager:
            given = (EnvVar(name="HOST_ROOT", value=root), *(manager.env or ()))
            found["manager"] = manager.model_copy(update={"env": given})
    return NvidiaDriverSpec.model_construct(
        **found,
        gds=policy.gds,
        gdrcopy=policy.gdrcopy,
        repo_config=Named(name=repositories.config_map_name) if repositories else None,
        virtual_topology_config=Named(name=topology.config) if topology else None,
        licensing_config=Licensing.model_construct(
            name=licence.config_map_name, secret_name=licence.secret_name, nls_enabled=licence.nls_enabled
        )
        if licence
        else None,
        labels=common.labels,
        annotations=common.annotations,
        tolerations=common.tolerations,
        priority_class_name=common.priority_class_name,
        pod_security_context=common.pod_security_context,
    )


def host_root(policy: ClusterPolicySpec | None) -> str:
    """Where the hosts' root is."""
    return (policy.host_paths.root_fs if policy and policy.host_paths else None) or "/"
