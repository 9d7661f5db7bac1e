"""What pools need to know beside nodes and custom resources."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from driverforge_operator.ports import Answer, Question, Ref
from driverforge_operator.state.contents import Content, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenShiftCluster:
    """An OpenShift cluster, its driver toolkit's images by the release of nodes, and its proxy."""

    version: str
    toolkit_images: Mapping[str, str] = field(default_factory=dict)
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""
    authorities: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """`contents` are our namespace's ConfigMaps and Secrets. `images` is None where no registry is asked.

    `environment` are the operator's own variables, with images that custom resources do not name; `unserved`
    the kinds that the API server does not know. `namespace_labels` are those of our namespace, None where
    nobody read them. `rejected` has what the API server said about objects that it does not take.
    """

    contents: Mapping[Source, Content] = field(default_factory=dict)
    images: Mapping[Question, Answer] | None = None
    openshift: OpenShiftCluster | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    unserved: Collection[str] = frozenset()
    namespace_labels: Mapping[str, str] | None = None
    rejected: Mapping[Ref, str] = field(default_factory=dict)
