"""driverctl runtime from a pod, on a node with systemd: the whole way through the node's namespaces, unit and
timer.

One node for all tests of this module; each leaves it as it found it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from support.machines import nodepod
from support.machines.engine import Engine
from support.machines.nodepod import NodePod
from support.machines.runtimenode import NAMES
from support.machines.systemdnode import SystemdNode, systemd_node
from support.process import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="containers need root")

DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
OVERRIDE = "/etc/systemd/system/containerd.service.d/test.conf"


@pytest.fixture(scope="module")
def node(engine: Engine, bookworm: str) -> Iterator[SystemdNode]:
    with systemd_node(engine, bookworm, mounts={}, name="runtime") as made:
        until(lambda: made.unit("containerd", "ActiveState") == ("active",), "containerd")
        yield made


@pytest.fixture(scope="module")
def pod(node: SystemdNode, engine: Engine, bookworm: str) -> NodePod:
    return NodePod(node=node, image=nodepod.image(engine, bookworm))


def state(node: SystemdNode) -> tuple[str, str]:
    """Every file under /etc/containerd with its mode and bytes; what driverctl keeps on the node."""
    files = node.run(
        "cd /etc/containerd && find . -print -exec stat --format='%a %u %g' {} ';' -type f -exec cat {} ';'"
    ).stdout
    kept = node.run(
        "find /var/lib/driverforge /run/driverforge -type f 2>/dev/null | sort", check=False
    ).stdout
    return files, kept


def reported(pod: NodePod) -> set[str]:
    return set(json.loads(pod.driverctl("runtime", "status", "--json").stdout)["reported"])


def pid(node: SystemdNode) -> str:
    return node.unit("containerd", "MainPID")[0]


def timers(node: SystemdNode) -> str:
    return node.run("systemctl list-units --all --no-legend 'driverforge-restore-*'").stdout


def test_apply_finds_the_unit_restarts_it_once_and_revert_undoes_all(node: SystemdNode, pod: NodePod) -> None:
    before = state(node)
    plan = json.loads(pod.driverctl("runtime", "plan", "--json").stdout)
    assert plan["restart"] == "systemctl restart containerd.service"
    assert plan["runtime"]["supervisor"] == {"kind": "systemd", "unit": "containerd.service"}
    assert any("the only container runtime that runs here" in line for line in plan["runtime"]["evidence"])
    assert state(node) == before
    first = pid(node)
    pod.driverctl("runtime", "apply")
    second = pid(node)
    assert second != first
    assert reported(pod) == {"runc", *NAMES}
    assert timers(node) == ""
    assert pod.driverctl("runtime", "apply").stdout.endswith("nothing to do\n")
    assert pid(node) == second
    pod.driverctl("runtime", "revert")
    assert state(node) == before
    assert reported(pod) == {"runc"}


def test_a_daemon_that_dies_of_the_change_gets_its_old_files_and_its_words_are_shown(
    node: SystemdNode, pod: NodePod
) -> None:
    before = state(node)
    with deadly(node, f"if grep -qs nvidia {DROP_IN}; then echo does not like nvidia; exit 1; fi"):
        failed = pod.driverctl("runtime", "apply", check=False)
        assert failed.status != 0
        assert "the old configuration is in force again" in failed.stderr
        assert "does not like nvidia" in failed.stderr
        assert state(node) == before
        assert reported(pod) == {"runc"}
    assert timers(node) == ""


def test_a_pod_that_is_killed_while_containerd_is_down_leaves_the_restore_to_the_node(
    node: SystemdNode, pod: NodePod
) -> None:
    before = state(node)
    with deadly(node, f"if grep -qs nvidia {DROP_IN}; then kill -9 $(cat /run/victim); exit 1; fi"):
        killed = pod.run(
            "sh", "-c", "echo $$ >/proc/1/root/run/victim; exec driverctl runtime apply", check=False
        )
        assert killed.status == 137
        # no driverctl runs: systemd's timer has to do it
        until(lambda: node.unit("containerd", "ActiveState") == ("active",), "containerd", timeout=60)
        until(
            lambda: node.run("ls /var/lib/driverforge/restore/*/restored", check=False).status == 0,
            "the restore",
            timeout=60,
        )
        assert state(node)[0] == before[0]
        assert reported(pod) == {"runc"}
    until(lambda: timers(node) == "", "the end of the timer", timeout=60)
    pod.driverctl("runtime", "apply")
    assert reported(pod) == {"runc", *NAMES}
    pod.driverctl("runtime", "revert")
    assert state(node) == before


class deadly:  # noqa: N801 - reads as the function that it is used as
    """While it lasts, containerd's start runs a script before, and fails if that does."""

    def __init__(self, node: SystemdNode, script: str) -> None:
        self.node = node
        node.put("/opt/before-start", f"#!/bin/sh\n{script}\n")
        node.put(OVERRIDE, "[Service]\nExecStartPre=/bin/sh /opt/before-start\n")
        node.run("systemctl daemon-reload")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self.node.run(
            f"rm {OVERRIDE} /opt/before-start && systemctl daemon-reload && systemctl reset-failed containerd"
        )
