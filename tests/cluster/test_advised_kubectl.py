"""Each kubectl command that the operator prints, or a page has, given to kubectl and a real API server.

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
CHANGES = (
    "apply",
    "label",
    "drain",
    "uncordon",
    "delete",
    "patch",
    "scale",
    "taint",
    "create",
    "annotate",
)
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


def of_pages() -> list[str]:
    """The kubectl commands in blocks of the pages, and those in a line that have an object's name.

    Not those that name a file: it is the reader's. Words in capitals are for the reader to fill in.
    """
    found = []
    for page in (TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))):
        text = re.sub(r"\\\n\s*", " ", page.read_text())
        blocks = re.findall(r"^(?:    |   )\s*(kubectl .*)$", text, re.MULTILINE)
        blocks += re.findall(r"```.*?```", text, re.DOTALL)
        lines = [line.strip() for block in blocks for line in block.splitlines()]
        lines += [
            span for span in re.findall(r"`(kubectl [^`]+)`", text) if re.search(r" [A-Z]{3,}| -n ", span)
        ]
        found += [piece.partition(" >")[0] for line in lines for piece in pieces(line)]
    theirs = re.compile(r" (-f|-k|--filename|--patch-file)\b|--from-file|\$|…|kubectl driverforge")
    every = {re.sub(r"\b[A-Z]{3,}\b", "x", one) for one in found if one.startswith("kubectl ")}
    return sorted(one for one in every if not theirs.search(one))


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


def test_there_are_commands() -> None:
    assert len(commands()) > 30
    assert len(of_pages()) > 12


@pytest.mark.parametrize("command", [*commands(), *of_pages()])
def test_kubectl_takes_what_is_printed(kubectl: Path, command: str) -> None:
    words = shlex.split(command)
    dry = ["--dry-run=server"] if {*CHANGES} & {*words} else []
    done = run(*words, *dry, cwd=TOP, env={"KUBECONFIG": str(kubectl)}, check=False, timeout=60)
    assert done.status == 0 or ANSWERED.search(done.stderr), done.stderr
