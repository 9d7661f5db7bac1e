"""What driver pods mount beside what all have: repositories, certificates, licences, subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_core.osid import OsId
from driverforge_operator.crd.nvidiadriver import NvidiaDriverSpec
from driverforge_operator.operands.manifest import Manifest
from driverforge_operator.state.contents import Content, Source

_REDHAT, _DEBIAN, _SUSE = (
    ("rhel", "rocky", "ol", "centos", "rhcos"),
    ("debian", "ubuntu"),
    ("sles", "sl-micro"),
)
_REPOSITORIES = {
    **dict.fromkeys(_REDHAT, "/etc/yum.repos.d"),
    **dict.fromkeys(_DEBIAN, "/etc/apt/sources.list.d"),
    **dict.fromkeys(_SUSE, "/etc/zypp/repos.d"),
}
_CERTIFICATES = {
    **dict.fromkeys(_REDHAT, "/etc/pki/ca-trust/extracted/pem"),
    **dict.fromkeys(_DEBIAN, "/usr/local/share/ca-certificates"),
    **dict.fromkeys(_SUSE, "/etc/pki/trust/anchors"),
}
_RHEL_SUBSCRIPTION = (
    ("/run/secrets/etc-pki-entitlement", "/etc/pki/entitlement", "Directory"),
    ("/run/secrets/redhat.repo", "/etc/yum.repos.d/redhat.repo", "File"),
    ("/run/secrets/rhsm", "/etc/rhsm", "Directory"),
)
_SUSE_SUBSCRIPTION = (
    ("/etc/SUSEConnect", "/etc/SUSEConnect", "FileOrCreate"),
    ("/etc/zypp/credentials.d", "/etc/zypp/credentials.d", "Directory"),
)
_LICENCE = {"gridd.conf": "/drivers/gridd.conf"}
_TOKEN = {"client_configuration_token.tok": "/drivers/ClientConfigToken/client_configuration_token.tok"}
_TOPOLOGY = {"nvidia-topologyd.conf": "/etc/nvidia/nvidia-topologyd.conf"}
_VOLUME_NAME = 63  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """Volumes of a pod, and the mounts of its containers."""

    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()

    def __add__(self, other: Mounts) -> Mounts:
        """Both. A volume that both have is there once, and of two with one name the second gets another."""
        volumes = {one["name"]: one for one in self.volumes}
        names: dict[str, str] = {}
        for one in other.volumes:
            name, number = one["name"], 1
            while name in volumes and volumes[name] != {**one, "name": name}:
                number += 1
                name = f"{one['name'][: _VOLUME_NAME - 3]}-{number}"
            names[one["name"]] = name
            volumes[name] = {**one, "name": name}
        mounts = tuple({**one, "name": names[one["name"]]} for one in other.mounts)
        return Mounts(volumes=tuple(volumes.values()), mounts=self.mounts + mounts)


def configuration(
    spec: NvidiaDriverSpec,
    os: OsId,
    *,
    precompiled: bool,
    subscribed: bool,
    contents: Mapping[Source, Content],
) -> Mounts:
    """What a driver on an OS mounts.

    `subscribed`: the host's Red Hat subscription is mounted. Raises LookupError with the words for a status
    where something cannot be had.
    """
    if spec.secret_env:
        _known(Source(secret=True, name=spec.secret_env), contents)
    found = Mounts()
    if not precompiled:
        if spec.repo_config and spec.repo_config.name:
            found += _files(spec.repo_config.name, _place(_REPOSITORIES, os, "repoConfig"), contents)
        if spec.cert_config and spec.cert_config.name:
            found += _files(spec.cert_config.name, _place(_CERTIFICATES, os, "certConfig"), contents)
        found += _subscription(spec, os, subscribed=subscribed)
    elif os.id in _SUSE:
        found += _host("lib-modules", "/run/host/lib/modules", "/lib/modules", "Directory")
    if spec.kernel_module_config and spec.kernel_module_config.name:
        found += _files(spec.kernel_module_config.name, "/drivers", contents)
    licence = spec.licensing_config
    if licence and (licence.secret_name or licence.name):
        source = Source(secret=bool(licence.secret_name), name=licence.secret_name or licence.name or "")
        paths = {**_LICENCE, **(_TOKEN if licence.nls_enabled else {})}
        found += _keys("licensing-config", source, paths)
    if spec.virtual_topology_config and spec.virtual_topology_config.name:
        source = Source(secret=False, name=spec.virtual_topology_config.name)
        found += _keys("topology-config", source, _TOPOLOGY)
    return found


def _place(places: Mapping[str, str], os: OsId, field: str) -> str:
    if os.id not in places:
        raise LookupError(f"spec.{field}: nobody knows where {os.id} has such files; leave it out there")
    return places[os.id]


def _files(name: str, folder: str, contents: Mapping[Source, Content]) -> Mounts:
    """A ConfigMap's entries as files of a folder that has others, too."""
    source = Source(secret=False, name=name)
    _known(source, contents)
    # a volume's name has no dots, and is shorter than a ConfigMap's
    volume = name.replace(".", "-")[:_VOLUME_NAME].rstrip("-")
    return _keys(volume, source, {key: f"{folder}/{key}" for key in contents[source].keys})


def _known(source: Source, contents: Mapping[Source, Content]) -> None:
    if source not in contents:
        raise LookupError(f"{source} is not there: create it, or leave it out of the spec")


def _keys(volume: str, source: Source, paths: Mapping[str, str]) -> Mounts:
    items = [{"key": key, "path": key} for key in paths]
    held = (
        {"secret": {"secretName": source.name, "items": items}}
        if source.secret
        else {"configMap": {"name": source.name, "items": items}}
    )
    return Mounts(
        volumes=({"name": volume, **held},),
        mounts=tuple(
            {"name": volume, "mountPath": path, "subPath": key, "readOnly": True}
            for key, path in paths.items()
        ),
    )


def _subscription(spec: NvidiaDriverSpec, os: OsId, *, subscribed: bool) -> Mounts:
    """The host's own right to packages; a repository of the site makes it superfluous on RHEL."""
    places: tuple[tuple[str, str, str], ...] = ()
    if os.id == "rhel" and subscribed and not (spec.repo_config and spec.repo_config.name):
        places = _RHEL_SUBSCRIPTION
    elif os.id in _SUSE:
        places = _SUSE_SUBSCRIPTION
    found = Mounts()
    for number, (path, host, kind) in enumerate(places):
        found += _host(f"subscription-config-{number}", path, host, kind)
    return found


def _host(name: str, path: str, host: str, kind: str) -> Mounts:
    return Mounts(
        volumes=({"name": name, "hostPath": {"path": host, "type": kind}},),
        mounts=({"name": name, "mountPath": path, "readOnly": True},),
    )
