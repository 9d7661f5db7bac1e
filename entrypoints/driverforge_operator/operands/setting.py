"""What the operands of a ClusterPolicy are made from, beside their manifests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from pydantic.alias_generators import to_snake

from driverforge_operator.crd.blocks import Image
from driverforge_operator.crd.clusterpolicy import Cdi, ClusterPolicySpec, HostPaths
from driverforge_operator.state.contents import Content, Source

CONTAINERD, CRIO, DOCKER = "containerd", "crio", "docker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """`runtime` is that of the nodes in question, `oses` the systems of nodes with GPUs, as tags name them.

    `gpus` says whether there is such a node. `environment` are the operator's own variables: images that a
    ClusterPolicy does not name. `contents` are what users' ConfigMaps and Secrets hold. `ready_taint`: nodes
    have a taint until they are validated. `openshift`: the cluster is one.
    """

    namespace: str
    spec: ClusterPolicySpec
    runtime: str
    oses: tuple[str, ...]
    gpus: bool
    environment: Mapping[str, str]
    ready_taint: bool = False
    openshift: bool = False
    contents: Mapping[Source, Content] = field(default_factory=dict)

    @property
    def cdi(self) -> bool:
        return (self.spec.cdi or Cdi()).enabled

    @property
    def nri(self) -> bool:
        """Whether an NRI plugin of the toolkit puts GPUs into pods, so that no runtime class is needed."""
        return (self.spec.cdi or Cdi()).nri_plugin_enabled

    @property
    def runtime_class(self) -> str:
        """The class of pods that use GPUs; '' where they get them otherwise: by NRI, or CRI-O's hook."""
        if self.nri or (self.runtime == CRIO and not self.cdi):
            return ""
        return self.spec.operator.runtime_class

    @property
    def toolkit(self) -> bool:
        return self.spec.toolkit.enabled is not False

    @property
    def host(self) -> HostPaths:
        return self.spec.host_paths or HostPaths()

    def image(self, path: str) -> Image:
        """A part of the spec that names an image, as 'vfioManager.driverManager'."""
        try:
            found = attrgetter(".".join(map(to_snake, path.split("."))))(self.spec)
        except AttributeError:
            # what it is a part of was not written
            found = None
        return found if isinstance(found, Image) else Image()
