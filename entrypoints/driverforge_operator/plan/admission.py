"""Pod security: our namespace takes privileged pods, where a ClusterPolicy asks for that (`psa.enabled`)."""

from __future__ import annotations

from driverforge_operator.plan.actions import LabelNamespace
from driverforge_operator.plan.intent import Intent
from driverforge_operator.state.surroundings import Surroundings

_OPENSHIFTS = "nvidia-gpu-operator"
"""On OpenShift only a namespace of this name is the operator's own."""
_WANTED = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}


def secured(intent: Intent, around: Surroundings) -> list[LabelNamespace]:
    """What our namespace lacks; nothing while it was not read."""
    known = around.namespace_labels
    shared = around.openshift is not None and intent.namespace != _OPENSHIFTS
    if not intent.secures_namespace or known is None or shared or _WANTED.items() <= known.items():
        return []
    return [LabelNamespace(name=intent.namespace, labels=_WANTED)]
