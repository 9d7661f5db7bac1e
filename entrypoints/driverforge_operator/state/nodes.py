"""A node: the fields that decide something."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_core import nodekeys
from driverforge_core.errors import InputError
from driverforge_core.osid import OsId
from driverforge_operator.state.kinds import NodeDocument

# a node carries about fifty more labels, of its CPU above all
_KEPT = (
    "nvidia.com/",
    nodekeys.RUNTIME,
    f"{nodekeys.FEATURE}pci-",
    f"{nodekeys.FEATURE}kernel-version.full",
    f"{nodekeys.FEATURE}system-os_release.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as decisions see it.

    `labels` are those of NVIDIA and of Node Feature Discovery's system and PCI sources, and those that some
    NVIDIADriver selects by; `runtime` is the name alone: containerd, cri-o, docker. `boot` is another after
    each boot; `tainted` is said of our taint.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    kernel: str
    arch: str
    os_image: str
    runtime: str
    ready: bool
    unschedulable: bool
    boot: str = ""
    tainted: bool = False

    @classmethod
    def of(cls, document: NodeDocument, *, selected_by: frozenset[str] = frozenset()) -> Node:
        """`selected_by` are further label keys to keep."""
        metadata, info = document.metadata, document.status.node_info
        return cls(
            name=metadata.name,
            labels=_shared(
                {
                    key: value
                    for key, value in metadata.labels.items()
                    if key.startswith(_KEPT) or key in selected_by
                }
            ),
            annotations=_shared(
                {
                    key: value
                    for key, value in metadata.annotations.items()
                    if key.startswith("nvidia.com/") or key == nodekeys.VALIDATED
                }
            ),
            kernel=sys.intern(metadata.labels.get(nodekeys.KERNEL) or info.kernel_version),
            arch=sys.intern(info.architecture),
            os_image=sys.intern(info.os_image),
            runtime=sys.intern(info.container_runtime_version.partition(":")[0]),
            ready=any(one.type == "Ready" and one.status == "True" for one in document.status.conditions),
            unschedulable=document.spec.unschedulable,
            boot=info.boot,
            tainted=any(one.key == nodekeys.NOT_READY for one in document.spec.taints),
        )

    @property
    def gpu(self) -> bool:
        """Whether Node Feature Discovery saw a device of NVIDIA's."""
        return any(self.labels.get(key) == "true" for key in nodekeys.GPU_FEATURES)

    def fits(self, selector: Mapping[str, str]) -> bool:
        """Whether a selector may choose it, by what is kept of its labels."""
        labels = {**self.labels, nodekeys.ARCH: self.arch}
        # another key than those that are kept may be there
        known = {key: value for key, value in selector.items() if key in labels or key.startswith(_KEPT)}
        return all(labels.get(key) == value for key, value in known.items())


def system_of(labels: Mapping[str, str]) -> OsId | None:
    """A node's system by its labels; None where Node Feature Discovery names none."""
    try:
        return OsId(id=labels.get(nodekeys.OS_ID, ""), version=labels.get(nodekeys.OS_VERSION, ""))
    except InputError:
        return None


def _shared(values: Mapping[str, str]) -> Mapping[str, str]:
    """The same texts of thousands of nodes are one text in memory."""
    return {sys.intern(key): sys.intern(value) for key, value in values.items()}
