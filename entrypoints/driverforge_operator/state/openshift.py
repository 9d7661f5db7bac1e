"""What is read of OpenShift: its version, the images of its driver toolkit, its proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from driverforge_operator.ports import Kind, kind_at
from driverforge_operator.state.kinds import Metadata
from driverforge_operator.state.surroundings import OpenShiftCluster


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A version that the cluster was updated to, or is being updated to."""

    state: str = ""
    version: str = ""


class VersionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of a ClusterVersion's status; the newest update is the first."""

    history: list[Update] = []


class ClusterVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A ClusterVersion as it is decoded."""

    metadata: Metadata
    status: VersionStatus = VersionStatus()


class TagSource(msgspec.Struct, frozen=True, kw_only=True):
    """The image behind a tag."""

    name: str = ""


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """One tag of an image stream: the release of a system."""

    name: str = ""
    source: TagSource = msgspec.field(name="from", default=TagSource())


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of an image stream's spec."""

    tags: list[Tag] = []


class ImageStream(msgspec.Struct, frozen=True, kw_only=True):
    """An image stream as it is decoded."""

    metadata: Metadata
    spec: StreamSpec = StreamSpec()


class Authorities(msgspec.Struct, frozen=True, kw_only=True):
    """A ConfigMap with certificates; '' for none."""

    name: str = ""


class ProxySpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The proxy that the cluster's programs use."""

    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""
    trusted_ca: Authorities = msgspec.field(name="trustedCA", default=Authorities())


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's proxy as it is decoded."""

    metadata: Metadata
    spec: ProxySpec = ProxySpec()


_CONFIG = "config.openshift.io/v1"
CLUSTER_VERSION = kind_at(
    _CONFIG, "ClusterVersion", "clusterversions", ClusterVersion, namespaced=False, only="version"
)
PROXY = kind_at(_CONFIG, "Proxy", "proxies", Proxy, namespaced=False, only="cluster")
DRIVER_TOOLKIT = kind_at(
    "image.openshift.io/v1",
    "ImageStream",
    "imagestreams",
    ImageStream,
    namespace="openshift",
    only="driver-toolkit",
)
OPENSHIFT: tuple[Kind[Any], ...] = (CLUSTER_VERSION, DRIVER_TOOLKIT, PROXY)
"""One object of each is read, and none elsewhere: the server does not know these kinds there."""


def openshift(found: Mapping[str, Any]) -> OpenShiftCluster | None:
    """OpenShift by its objects, `found` by their kinds' names; None where this is another Kubernetes."""
    version: ClusterVersion | None = found.get(CLUSTER_VERSION.name)
    if version is None:
        return None
    done = next((one.version for one in version.status.history if one.state == "Completed"), "")
    stream: ImageStream | None = found.get(DRIVER_TOOLKIT.name)
    proxy: Proxy | None = found.get(PROXY.name)
    wanted = proxy.spec if proxy else ProxySpec()
    return OpenShiftCluster(
        version=".".join(done.split(".")[:2]),
        # 'latest' is one of the others
        toolkit_images={
            one.name: one.source.name
            for one in (stream.spec.tags if stream else ())
            if one.name not in ("", "latest")
        },
        http_proxy=wanted.http_proxy,
        https_proxy=wanted.https_proxy,
        no_proxy=wanted.no_proxy,
        authorities=bool(wanted.trusted_ca.name),
    )
