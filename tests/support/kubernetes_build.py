"""kube-apiserver with etcd, and kubelet, compiled from the Go module proxy with this machine's `go`; only the programs are kept.

Dear with an empty cache: minutes of two processors and gigabytes of Go caches, which are deleted afterwards. So a test run makes
them only when asked to (`FULL`); a folder that has them already can be named (`PROGRAMS`). The kubelet is an entry of its own in
the cache: whoever needs the API alone does not pay for it.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import InputError, Unavailable
from support import cache
from support.process import missing, run

FULL = "DRIVERFORGE_FULL"  # 1: make what is dear to make; set by `hack/test --full`
PROGRAMS = "DRIVERFORGE_CLUSTER_BIN"  # a folder with kube-apiserver and etcd, used instead of the cache's
VERSION = "1.34.4"

_PACKAGES = {"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "etcd": "go.etcd.io/etcd/server/v3"}
_KUBELET = {"kubelet": "k8s.io/kubernetes/cmd/kubelet"}
# without a stamp the server calls itself v0.0.0-master+$Format:%H$
_MAJOR, _MINOR, _ = VERSION.split(".")
_STAMP = {"gitVersion": f"v{VERSION}", "gitMajor": _MAJOR, "gitMinor": _MINOR, "gitTreeState": "clean"}
_FLAGS = (
    "-trimpath",
    "-gcflags=all=-l -dwarf=false",  # a fifth less to compile, a second more to start
    f"-ldflags=-s -w {' '.join(f'-X k8s.io/component-base/version.{name}={value}' for name, value in _STAMP.items())}",
)
_ELSEWHERE = f"{PROGRAMS} names a folder that has them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of a control plane that serves the API and runs nothing."""

    apiserver: Path
    etcd: Path


def programs(environ: Mapping[str, str] = os.environ) -> Programs:
    """From the folder that `PROGRAMS` names, else from the cache; compiled if `FULL` is 1.

    Raises InputError if the folder lacks one; Unavailable, with the command that makes them, if the cache does.
    """
    if named := environ.get(PROGRAMS):
        found = _in(Path(named))
        if gone := missing(str(found.apiserver), str(found.etcd)):
            raise InputError(f"{PROGRAMS} names a folder without programs", details=gone)
        return found
    return _in(
        _made("cluster", f"kube-apiserver {VERSION} and etcd", _PACKAGES, full=environ.get(FULL) == "1")
    )


def kubelet(environ: Mapping[str, str] = os.environ) -> Path:
    """The kubelet of the same version, found or compiled by the same rule.

    Raises Unavailable where there is none: a folder that was named for its API server need not have one.
    """
    if named := environ.get(PROGRAMS):
        found = Path(named) / "kubelet"
        if missing(str(found)):
            raise Unavailable(f"{PROGRAMS} names a folder without a kubelet", details=[str(found)])
        return found
    return _made("kubelet", f"kubelet {VERSION}", _KUBELET, full=environ.get(FULL) == "1") / "kubelet"


def _in(folder: Path) -> Programs:
    return Programs(apiserver=folder / "kube-apiserver", etcd=folder / "etcd")


def _made(entry: str, what: str, packages: Mapping[str, str], *, full: bool) -> Path:
    if missing("go"):
        raise Unavailable(
            f"no go here to compile {what}", resolution=f"install Go 1.24 or newer; {_ELSEWHERE}"
        )

    def refuse(folder: Path) -> None:
        raise Unavailable(
            f"{what} is not in the cache",
            details=[str(folder.parent)],
            resolution=f"hack/test --full cluster compiles it, in about 5 minutes and 3 GB; {_ELSEWHERE}",
        )

    toolchain = run("go", "env", "GOVERSION", "GOOS", "GOARCH").stdout.split()
    inputs = {"kubernetes": VERSION, "go": toolchain, "packages": packages, "flags": _FLAGS}
    return cache.cached(entry, inputs, (lambda folder: _compile(folder, packages)) if full else refuse)


def _compile(folder: Path, packages: Mapping[str, str]) -> None:
    """All programs in one module, so that etcd has the version which Kubernetes was tested with and shares its dependencies."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work = Path(name)
        env = {
            "CGO_ENABLED": "0",
            "GOCACHE": str(work / "build"),
            "GOMODCACHE": str(work / "modules"),
            # without modcacherw the module cache is read-only and only root could delete it
            "GOFLAGS": "-mod=mod -modcacherw -buildvcs=false",
            "GOWORK": "off",
        }
        about = json.loads(
            run("go", "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}", cwd=work, env=env).stdout
        )
        (work / "go.mod").write_text(module_file(Path(about["GoMod"]).read_text(), VERSION))
        for program, package in packages.items():
            run(
                "nice", "-n", "19", "go", "build", *_FLAGS, "-o", folder / program, package, cwd=work, env=env
            )


def module_file(upstream: str, version: str) -> str:
    """A go.mod that builds Kubernetes from the proxy: k8s.io/kubernetes' own, with published staging modules.

    Upstream replaces 31 staging modules by folders that its published zip lacks; each is published too, 1.34.4 as v0.34.4.
    """
    staging = "v0." + version.partition(".")[2]
    text = re.sub(r"(?m)^module k8s\.io/kubernetes$", "module cluster", upstream)
    text = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 {staging}", text)
    return f"{text}\nrequire k8s.io/kubernetes v{version}\n"
