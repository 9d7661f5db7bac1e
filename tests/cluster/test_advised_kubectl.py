"""Each kubectl command that the operator's programs print, given to kubectl and a real API server.

What changes something is a dry run of the server's. A server's own refusal is an answer (there is no kubelet
to ask for a log); what kubectl itself does not take is an error.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_operator.explain.causes import CAUSES
from support.advised import pieces, texts
from support.cluster.kubernetes import Api
from support.cluster.operator import NAMESPACE, ground
from support.process import missing, run

pytestmark = [
    pytest.mark.full(reason="kubectl starts for each command"),
    # the programs may have to be compiled first
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing("kubectl")), reason="no kubectl here"),
]

TOP = Path(__file__).resolve().parents[2]
EXPLAIN = TOP / "entrypoints/driverforge_operator/explain"
NODE = "op-advised"
ANSWERED = re.compile(r"[Ee]rror from server|not found$", re.MULTILINE)
CHANGES = ("apply", "label", "drain", "uncordon", "delete", "patch", "scale", "taint")
FILLED = {
    "node": NODE,
    "namespace": NAMESPACE,
    "daemonset": "nvidia-driver-daemonset",
    "pod": "nvidia-driver-daemonset-x7k2p",
    "container": "nvidia-driver-ctr",
    "image": "nvcr.io/nvidia/driver:1",
}


def commands() -> list[str]:
    """The kubectl commands of the table of causes, and those of the other modules with what they fill in."""
    found = [cause.filled(**FILLED).command for cause in CAUSES]
    for path in sorted(EXPLAIN.glob("*.py")):
        found += [text for text in texts(path.read_text()) if path.name != "causes.py"]
    every = [piece for text in found if "kubectl " in text for piece in pieces(text)]
    return sorted({_filled(piece) for piece in every if piece.startswith("kubectl ")})


def _filled(command: str) -> str:
    """A command with words for what is filled in: X in a module's text."""
    head, verb, rest = command.partition(" X")
    if head in ("kubectl get", "kubectl describe", "kubectl patch"):
        rest = f" clusterpolicies{rest}" if head != "kubectl patch" else f" clusterpolicies x{rest}"
        verb = ""
    filled = (
        f"{head}{verb}{rest}".replace("--overwrite X=X", "--overwrite x=y")
        .replace("--overwrite X", "--overwrite x=y")
        .replace("'X'", "'{}'")
    )
    return filled.replace("X", "x")


@pytest.fixture(scope="module")
def kubectl(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file with which kubectl reaches the server, where there is a node."""
    config = tmp_path_factory.mktemp("kubectl") / "config"
    config.write_text(api.kubeconfig_with(api.token))
    with ground(api):
        node = {"metadata": {"name": NODE}, "apiVersion": "v1", "kind": "Node"}
        assert api.request("POST", "/api/v1/nodes", json.dumps(node)).ok
        yield config
        api.request("DELETE", f"/api/v1/nodes/{NODE}")


@pytest.mark.parametrize("command", commands())
def test_kubectl_takes_what_is_printed(kubectl: Path, command: str) -> None:
    words = shlex.split(command)
    dry = ["--dry-run=server"] if words[1] in CHANGES else []
    done = run(*words, *dry, cwd=TOP, env={"KUBECONFIG": str(kubectl)}, check=False, timeout=60)
    assert done.status == 0 or ANSWERED.search(done.stderr), done.stderr
