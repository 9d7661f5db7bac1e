"""kube-apiserver with etcd, and kubelet, compiled from the Go module proxy with this machine's `go`.

Only the programs are kept. With an empty cache this is dear: minutes of two processors, and gigabytes of Go
caches, which are removed after the build. All three are one build, because they share most of their packages:
the kubelet costs seconds after the API server, and minutes alone. `PROGRAMS` may name a folder that has them
already.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import InputError, Unavailable
from support import gobuild
from support.process import missing

PROGRAMS = "DRIVERFORGE_CLUSTER_BIN"  # a folder with kube-apiserver and etcd, used instead of the cache's
VERSION = "1.35.4"
MODULE = "k8s.io/kubernetes"

# without a stamp the server calls itself v0.0.0-master+$Format:%H$
_MAJOR, _MINOR, _ = VERSION.split(".")
_STAMP = {"gitVersion": f"v{VERSION}", "gitMajor": _MAJOR, "gitMinor": _MINOR, "gitTreeState": "clean"}
_FLAGS = (
    *gobuild.QUICK,
    (
        "-ldflags=-s -w "
        f"{' '.join(f'-X k8s.io/component-base/version.{key}={value}' for key, value in _STAMP.items())}"
    ),
)
# in one module, so that etcd has the version which Kubernetes was tested with
RECIPE = gobuild.Recipe(
    name="cluster",
    what=f"kube-apiserver, kubelet {VERSION} and etcd",
    requires={MODULE: f"v{VERSION}"},
    packages={
        "kube-apiserver": f"{MODULE}/cmd/kube-apiserver",
        "kubelet": f"{MODULE}/cmd/kubelet",
        "etcd": "go.etcd.io/etcd/server/v3",
    },
    flags=_FLAGS,
    staging=MODULE,
)
# apart from those: few tests need them, and everybody else would wait for them, too
CONTROLLERS = gobuild.Recipe(
    name="cluster-controllers",
    what=f"kube-controller-manager and kube-scheduler {VERSION}",
    requires={MODULE: f"v{VERSION}"},
    packages={name: f"{MODULE}/cmd/{name}" for name in ("kube-controller-manager", "kube-scheduler")},
    flags=_FLAGS,
    staging=MODULE,
)
_ELSEWHERE = f"{PROGRAMS} names a folder that has them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of a control plane that serves the API and runs nothing."""

    apiserver: Path
    etcd: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """What makes pods of DaemonSets and puts them onto nodes."""

    manager: Path
    scheduler: Path


def programs(environ: Mapping[str, str] = os.environ) -> Programs:
    """From the folder that `PROGRAMS` names, else from the cache; compiled where it has none.

    Raises InputError if the folder lacks one; Unavailable where they cannot be compiled here.
    """
    if named := environ.get(PROGRAMS):
        found = _in(Path(named))
        if gone := missing(str(found.apiserver), str(found.etcd)):
            raise InputError(f"{PROGRAMS} names a folder without programs", details=gone)
        return found
    return _in(_cached(RECIPE))


def kubelet(environ: Mapping[str, str] = os.environ) -> Path:
    """The kubelet of the same version, found or compiled by the same rule.

    Raises Unavailable where there is none: a folder that was named for its API server need not have one.
    """
    if named := environ.get(PROGRAMS):
        found = Path(named) / "kubelet"
        if missing(str(found)):
            raise Unavailable(f"{PROGRAMS} names a folder without a kubelet", details=[str(found)])
        return found
    return _cached(RECIPE) / "kubelet"


def controllers(environ: Mapping[str, str] = os.environ) -> Controllers:
    """The controllers of the same version, found or compiled by the same rule as the kubelet."""
    named = environ.get(PROGRAMS)
    folder = Path(named) if named else _cached(CONTROLLERS)
    found = Controllers(manager=folder / "kube-controller-manager", scheduler=folder / "kube-scheduler")
    if gone := missing(str(found.manager), str(found.scheduler)):
        raise Unavailable(f"{PROGRAMS} names a folder without controllers", details=gone)
    return found


def _in(folder: Path) -> Programs:
    return Programs(apiserver=folder / "kube-apiserver", etcd=folder / "etcd")


def made() -> bool:
    """Whether nothing has to be compiled any more."""
    return bool(os.environ.get(PROGRAMS)) or all(map(gobuild.made, (RECIPE, CONTROLLERS)))


def _cached(recipe: gobuild.Recipe) -> Path:
    try:
        return gobuild.programs(recipe)
    except Unavailable as error:
        raise Unavailable(
            error.brief,
            details=error.details,
            resolution=f"{error.resolution}; {_ELSEWHERE}".removeprefix("; "),
        ) from error
