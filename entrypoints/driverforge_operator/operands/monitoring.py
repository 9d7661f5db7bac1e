"""Metrics: what is exported, and how Prometheus comes to it."""

from __future__ import annotations

from driverforge_operator.crd.kubernetes import ServiceMonitor, as_written
from driverforge_operator.operands.manifest import (
    Manifest,
    container,
    daemonset,
    default_env,
    one_of,
    pod,
    remove,
    set_env,
)
from driverforge_operator.operands.setting import Setting

_ENDPOINT = ("interval", "scrapeTimeout", "honorLabels", "relabelings")
_JOBS = "/var/lib/dcgm-exporter/job-mapping"


def operator_metrics(objects: list[Manifest], setting: Setting) -> None:
    metrics = setting.spec.operator.metrics
    _monitor(objects, setting, metrics.service_monitor if metrics else None)


def monitored(objects: list[Manifest], setting: Setting) -> None:
    """Nothing of it can be chosen."""
    _monitor(objects, setting, ServiceMonitor(enabled=True))


def dcgm_exporter(objects: list[Manifest], setting: Setting) -> None:
    spec, workload = setting.spec.dcgm_exporter, daemonset(objects)
    main, of_pod = container(workload, "nvidia-dcgm-exporter"), pod(workload)
    _monitor(objects, setting, spec.service_monitor)
    if spec.service:
        written = {key: value for key, value in as_written(spec.service).items() if value}
        one_of(objects, "Service")["spec"].update(written)
    if setting.spec.dcgm.enabled is not False:
        default_env(main, {"DCGM_REMOTE_HOSTENGINE_INFO": "nvidia-dcgm:5555"})
    if spec.host_pid:
        of_pod["hostPID"] = True
    if spec.config and spec.config.name:
        _collectors(workload, main, spec.config.name)
    if spec.hpc_job_mapping and spec.hpc_job_mapping.enabled:
        _jobs(workload, main, spec.hpc_job_mapping.directory or _JOBS)
    if spec.enable_pod_labels or spec.enable_pod_uid:
        of_pod["automountServiceAccountToken"] = True
    else:
        remove(objects, "ClusterRole", "nvidia-dcgm-exporter-read-pods")
    if spec.enable_pod_labels:
        set_env(main, {"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true"})
        if spec.pod_label_allowlist_regex:
            allowed = ",".join(spec.pod_label_allowlist_regex)
            set_env(main, {"DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": allowed})
    if spec.enable_pod_uid:
        set_env(main, {"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID": "true"})
    for one in (workload["metadata"], workload["spec"]["template"]["metadata"]):
        if spec.annotations:
            one["annotations"] = {**one.get("annotations", {}), **spec.annotations}


def _collectors(workload: Manifest, main: Manifest, name: str) -> None:
    """Count what a user's ConfigMap says."""
    file = "dcgm-metrics.csv"
    items = [{"key": file, "path": file}]
    pod(workload)["volumes"].append({"name": "metrics-config", "configMap": {"name": name, "items": items}})
    path = f"/etc/dcgm-exporter/{file}"
    main["volumeMounts"].append(
        {"name": "metrics-config", "mountPath": path, "subPath": file, "readOnly": True}
    )
    set_env(main, {"DCGM_EXPORTER_COLLECTORS": path})


def _jobs(workload: Manifest, main: Manifest, folder: str) -> None:
    """Name the jobs of a batch system that use a GPU."""
    name = "hpc-job-mapping"
    pod(workload)["volumes"].append({"name": name, "hostPath": {"path": folder, "type": "DirectoryOrCreate"}})
    main["volumeMounts"].append({"name": name, "mountPath": folder, "readOnly": True})
    set_env(main, {"DCGM_HPC_JOB_MAPPING_DIR": folder})


def _monitor(objects: list[Manifest], setting: Setting, wish: ServiceMonitor | None) -> None:
    found = one_of(objects, "ServiceMonitor")
    if wish is None or not wish.enabled:
        objects.remove(found)
        return
    found["spec"]["namespaceSelector"] = {"matchNames": [setting.namespace]}
    found["metadata"]["labels"] |= wish.additional_labels or {}
    (endpoint,) = found["spec"]["endpoints"]
    written = as_written(wish)
    endpoint |= {key: written[key] for key in _ENDPOINT if written.get(key)}
