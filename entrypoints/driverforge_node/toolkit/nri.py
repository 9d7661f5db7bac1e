"""Which CDI devices a pod's annotations ask for, as NVIDIA's NRI plugin reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

DOMAIN = "nvidia.cdi.k8s.io"
MANAGEMENT = "management.nvidia.com/gpu"


def requested_devices(
    annotations: Mapping[str, str], *, container: str, namespace: str, management_namespaces: Collection[str]
) -> tuple[str, ...]:
    """The CDI names for a container, from the most particular of its annotations.

    Management devices give access to all GPUs of the node. Outside of `management_namespaces`, an annotation
    that has one gives nothing at all.
    """
    keys = (f"{DOMAIN}/container.{container}", f"{DOMAIN}/pod", DOMAIN)
    value = next((annotations[key] for key in keys if key in annotations), "")
    if MANAGEMENT in value and namespace not in management_namespaces:
        return ()
    return tuple(filter(None, (name.strip() for name in value.split(","))))
