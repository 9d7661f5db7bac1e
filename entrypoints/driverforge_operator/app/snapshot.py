"""A must-gather: all that the reading commands read, as files that `--from` takes, without secrets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import yaml

from driverforge_operator.app.look import Looks
from driverforge_operator.explain.redact import redact, redact_text
from driverforge_operator.ports import Document, Inspector, Kind, Log
from driverforge_operator.state.contents import CONFIG_MAPS, CONTENTS, SECRETS, Content, ContentDocument
from driverforge_operator.state.kinds import CLUSTER_POLICY, DEFINITION, NODE, NVIDIA_DRIVER, OURS
from driverforge_operator.state.openshift import OPENSHIFT
from driverforge_operator.state.workloads import (
    DAEMON_SET,
    DEPLOYMENT,
    EVENT,
    NAMESPACE,
    POD,
    RUNTIME_CLASS,
)

_LINES = 2000  # of each log
_LOOKED_AT = (
    CLUSTER_POLICY,
    NVIDIA_DRIVER,
    DEFINITION,
    DAEMON_SET,
    DEPLOYMENT,
    EVENT,
    NAMESPACE,
    POD,
)
"""What findings are made from."""
_OTHERS = ("node-feature-discovery", "nfd", "mofed")  # of whose pods gates speak, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Names of files and their texts; `unread` is what the user may not see."""

    files: dict[str, str]
    unread: tuple[str, ...]


def snapshot(inspector: Inspector, namespace: str) -> Snapshot:
    looks = Looks(inspector)
    everywhere = [NODE, CLUSTER_POLICY, NVIDIA_DRIVER, DEFINITION, RUNTIME_CLASS, DAEMON_SET, DEPLOYMENT]
    found = {kind.plural: list(looks.everywhere(_whole(kind))) for kind in everywhere}
    found[DEFINITION.plural] = [
        one for one in found[DEFINITION.plural] if one["metadata"]["name"].endswith("nvidia.com")
    ]
    found[NAMESPACE.plural] = list(looks.everywhere(NAMESPACE, f"metadata.name={namespace}"))
    found[EVENT.plural] = list(looks.everywhere(_whole(EVENT), "type=Warning"))
    for kind in OPENSHIFT:
        found[kind.plural] = list(looks.noted(_whole(kind)))
    for kind in OURS:
        if kind.plural not in found:
            found[kind.plural] = list(looks.noted(kind))
    found[POD.plural] = [
        pod
        for one in sorted({namespace, *_namespaces(found[DAEMON_SET.plural])})
        for pod in looks.everywhere(_whole(POD), f"metadata.namespace={one}")
    ]
    files = {f"{plural}.yaml": _text(documents) for plural, documents in found.items() if documents}
    specs = (one.get("spec") for kind in (CLUSTER_POLICY, NVIDIA_DRIVER) for one in found[kind.plural])
    named = {text for spec in specs for text in _texts(spec)}
    contents = {
        CONFIG_MAPS: found[CONFIG_MAPS.plural],
        SECRETS: [
            one
            for one in looks.noted(_whole(SECRETS), labels=dict(CONTENTS)[SECRETS])
            if one["metadata"]["name"] in named and one.get("type", "Opaque") == "Opaque"
        ],
    }
    files |= {f"{kind.plural}.yaml": _contents(kind, ones) for kind, ones in contents.items() if ones}
    # of what was read, and is not there: else a reader had to think that nobody looked
    unknown = looks.hidden | looks.undumped
    files |= {
        f"{kind.plural}.yaml": _none(kind)
        for kind in (*_LOOKED_AT, *OURS, *OPENSHIFT)
        if not found[kind.plural] and kind.plural not in unknown
    }
    for log in _logs(found[POD.plural]):
        if lines := looks.log(log, _LINES):
            files[f"logs/{log.file}"] = redact_text("\n".join(lines)) + "\n"
    files["README.txt"] = _readme(namespace, looks.unread)
    return Snapshot(files=files, unread=tuple(looks.unread))


def _whole(kind: Kind[Any]) -> Kind[dict[str, Any]]:
    return replace(kind, model=dict)


def _namespaces(daemonsets: Iterable[Document]) -> set[str]:
    """Where operands are, and what finds GPUs for them."""
    return {
        one["metadata"]["namespace"]
        for one in daemonsets
        if any(word in one["metadata"]["name"] for word in _OTHERS)
        or any("nvidia.com/" in key for key in one["spec"]["template"]["spec"].get("nodeSelector") or ())
    }


def _logs(pods: Iterable[Document]) -> list[Log]:
    """Of each container, and what it wrote before its last restart."""
    found: list[Log] = []
    for pod in pods:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        status = pod.get("status") or {}
        for group in ("initContainerStatuses", "containerStatuses"):
            for one in status.get(group) or ():
                log = Log(namespace=namespace, pod=name, container=one["name"])
                found += [log, *([replace(log, previous=True)] if one.get("restartCount") else [])]
    return found


def _text(documents: Iterable[Document]) -> str:
    return yaml.dump_all(map(redact, documents), Dumper=yaml.CSafeDumper, sort_keys=False)


def _contents(kind: Kind[ContentDocument], documents: Iterable[Document]) -> str:
    """What pods use, without secrets, and the digest of what it held: pods are made by it, and say a part."""
    told = [
        {**redact(one), "digest": Content.of(msgspec.convert(one, kind.model)).digest} for one in documents
    ]
    return yaml.dump_all(told, Dumper=yaml.CSafeDumper, sort_keys=False)


def _texts(value: object) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for one in value.values() for text in _texts(one))
    elif isinstance(value, list):
        yield from (text for one in value for text in _texts(one))


def _none(kind: Kind[Any]) -> str:
    """An empty list that says of what it is."""
    return _text([{"apiVersion": kind.api_version, "kind": f"{kind.name}List", "metadata": {}, "items": []}])


def _readme(namespace: str, unread: Iterable[str]) -> str:
    lines = [
        f"A snapshot of the GPU operator's part of a cluster, namespace {namespace}, without secrets.",
        "Read it with: driverforge-operator explain NODE | status | doctor | plan --from THIS",
        *(f"not read: {one}" for one in unread),
    ]
    return "\n".join(lines) + "\n"
