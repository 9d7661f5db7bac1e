"""Labels of our namespace: it takes privileged pods, and OpenShift's Prometheus looks into it."""

from __future__ import annotations

from driverforge_operator.plan.actions import LabelNamespace
from driverforge_operator.plan.intent import Intent
from driverforge_operator.state.surroundings import Surroundings

_OPENSHIFTS = "nvidia-gpu-operator"
"""On OpenShift only a namespace of this name is the operator's own."""
_SECURITY = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
_MONITORING = "openshift.io/cluster-monitoring"


def reads_namespace(intent: Intent, around: Surroundings) -> bool:
    """Whether the labels of our namespace count."""
    return _secured(intent, around) or _monitored(intent, around)


def label_namespace(intent: Intent, around: Surroundings) -> list[LabelNamespace]:
    """What our namespace lacks; nothing while it was not read."""
    known = around.namespace_labels
    if known is None:
        return []
    wanted: dict[str, str] = {}
    if _secured(intent, around) and not _SECURITY.items() <= known.items():
        wanted |= _SECURITY
    # "false" is an administrator's
    if _monitored(intent, around) and _MONITORING not in known:
        wanted[_MONITORING] = "true"
    return [LabelNamespace(name=intent.namespace, labels=wanted)] if wanted else []


def _secured(intent: Intent, around: Surroundings) -> bool:
    shared = around.openshift is not None and intent.namespace != _OPENSHIFTS
    return intent.secures_namespace and not shared


def _monitored(intent: Intent, around: Surroundings) -> bool:
    asked = intent.policy is not None and intent.policy.spec is not None
    return asked and around.openshift is not None and intent.namespace == _OPENSHIFTS
