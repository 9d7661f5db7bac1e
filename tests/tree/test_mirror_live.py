"""`driverforge mirror lock --nodes live`: what kubectl says, as if it were in a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from driverforge_build.cli import run
from support.fakes.mockpath import MockPath
from support.samples.clusternodes import node, write_nodes

POLICY = {
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy"},
    "spec": {
        "validator": {"image": "r.test/validator:1"},
        "driver": {
            "repository": "r.test",
            "image": "driver",
            "version": "595.91.07",
            "manager": {"image": "r.test/manager:1"},
        },
        **{name: {"enabled": False} for name in ("toolkit", "devicePlugin", "dcgm", "dcgmExporter")},
        **{name: {"enabled": False} for name in ("gfd", "migManager")},
    },
}


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MockPath:
    commands = MockPath(tmp_path / "bin")
    write_nodes(tmp_path, node("gpu-0"))
    (tmp_path / "policy.json").write_text(json.dumps({"kind": "List", "items": [POLICY]}))
    commands.add(
        "kubectl", f'case "$2" in nodes) cat {tmp_path}/nodes.json;; *) cat {tmp_path}/policy.json;; esac'
    )
    monkeypatch.setenv("PATH", f"{commands.folder}:{os.environ['PATH']}")
    return commands


def test_nodes_and_policies_of_a_running_cluster(
    commands: MockPath, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mirror", "lock", "--plan", "--nodes", "live", "--policy", "live"]) == 0
    assert "r.test/driver:595.91.07-ubuntu22.04\n" in capsys.readouterr().out
    assert sorted(commands.calls("kubectl")) == [
        "get clusterpolicies,nvidiadrivers --output json",
        "get nodes --output json",
    ]


def test_what_kubectl_complains_of_is_told(commands: MockPath, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = "Error from server (Forbidden): nodes is forbidden: User admin cannot list resource"
    commands.add("kubectl", f"echo '{refusal}' >&2; exit 1")
    assert run(["mirror", "lock", "--plan", "--nodes", "live", "--chart", "v26.7.0"]) != 0
    told = capsys.readouterr().err
    assert "kubectl could not list nodes" in told
    assert refusal in told
    assert "needs the right to list nodes" in told


def test_without_kubectl_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["mirror", "lock", "--plan", "--nodes", "live", "--chart", "v26.7.0"]) == 69
    assert "run that command where there is one" in capsys.readouterr().err
