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
    applied = pod.driverctl("runtime", "apply")
    assert "restarted runtime=containerd" in applied.stderr
    assert "no rehearsal" not in applied.stderr
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
        survivor = pid(node)
        again = pod.driverctl("runtime", "apply", check=False)
        assert "did not accept this change on" in again.stderr
        assert "does not like nvidia" in again.stderr
        assert pid(node) == survivor, "the next pod restarts nothing"
        node.run("rm -r /var/lib/driverforge/refused")
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


def test_a_reboot_in_the_middle_of_an_apply_starts_containerd_with_the_old_files(
    node: SystemdNode, pod: NodePod
) -> None:
    """It hangs with the new files, and the power fails. The machine's kernel does not start again here, so
    the script is told of another boot.
    """
    before, starts = state(node), "/opt/starts"
    node.run("touch /run/before")  # it goes with the power
    told = f'$(ls /run/before 2>/dev/null)" >>{starts}'
    waits = f'while grep -qs nvidia {DROP_IN}; do echo "new{told}; sleep 0.2; done; echo "old{told}'
    with deadly(node, waits):
        pod.run("driverctl", "runtime", "apply", options=("--detach",))
        until(lambda: node.run(f"cat {starts}", check=False).stdout.startswith("new"), "the restart")
        assert boot_units(node)
        node.run("systemctl stop 'driverforge-restore-*.timer'")
        script = "/var/lib/driverforge/restore/*/restore.sh"
        node.run(f"sed -i 's/ \"$now\" = .* / x = another /' {script} && grep 'x = another' {script}")
        node.reboot()
        until(lambda: node.unit("containerd", "ActiveState") == ("active",), "containerd", timeout=60)
        found = node.run(f"cat {starts}").stdout.splitlines()
        assert [line for line in found if "/run/before" not in line] == ["old"]
    said = node.run("cat /var/lib/driverforge/restore/*/log").stdout
    assert "the runtime starts after this" in said
    assert (state(node)[0], boot_units(node)) == (before[0], "")
    pod.driverctl("runtime", "apply")
    assert reported(pod) == {"runc", *NAMES}
    pod.driverctl("runtime", "revert")
    assert state(node) == before
    node.run(f"rm {starts}")


RKE2 = "/var/lib/rancher/rke2/agent/etc/containerd"
RKE2_ROOT = f"""# File generated by rke2. DO NOT EDIT. Use config.toml.tmpl instead.
version = 2
imports = ["{RKE2}/config.toml.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""
RKE2_UNIT = f"""[Service]
Type=notify
ExecStartPre=/bin/sh -c 'until [ -e /run/go ]; do sleep 0.1; done'
ExecStart=/usr/bin/containerd --config {RKE2}/config.toml
Delegate=yes
KillMode=process
"""
AT_STOP = """import sys
sys.path.insert(0, "/opt/driverforge/lib")
from driverforge_toolkit.app.configure_runtime import revert_at_stop
from driverforge_host.adapters.real import real_host
from driverforge_host.adapters.sockets import UnixSockets
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
request = RuntimeRequest(wanted=wanted_handlers())
revert_at_stop(RuntimeSystem(host=real_host(), sockets=UnixSockets(), request=request))
"""


def test_a_stop_on_rke2_leaves_the_revert_to_the_node(node: SystemdNode, pod: NodePod) -> None:
    """A containerd under rke2's unit, which is up when somebody says so: after the pod has gone."""
    node.run("systemctl stop containerd && touch /run/go")
    node.put(f"{RKE2}/config.toml", RKE2_ROOT)
    node.put("/etc/systemd/system/rke2-server.service", RKE2_UNIT)
    node.run("systemctl daemon-reload && systemctl start rke2-server")
    try:
        kept = "find /var/lib/driverforge /etc/systemd/system/driverforge-* -type f 2>/dev/null | sort"
        before = node.run(f"cat {RKE2}/config.toml; ls {RKE2}; {kept}", check=False).stdout
        pod.driverctl("runtime", "apply")
        assert reported(pod) == {"runc", *NAMES}
        node.run("rm /run/go")
        pod.run("python3", "-I", "-S", "-c", AT_STOP)
        until(lambda: node.unit("rke2-server", "ActiveState") == ("activating",), "the restart")
        node.run("touch /run/go")
        until(lambda: node.unit("rke2-server", "ActiveState") == ("active",), "rke2", timeout=60)
        until(
            lambda: node.run(f"cat {RKE2}/config.toml; ls {RKE2}; {kept}", check=False).stdout == before,
            "the end of the revert",
        )
        assert reported(pod) == {"runc"}
        until(lambda: timers(node) == "", "the end of the timer", timeout=60)
    finally:
        node.run(
            "touch /run/go; systemctl stop rke2-server; rm /etc/systemd/system/rke2-server.service; "
            f"rm -r {RKE2}; systemctl daemon-reload; systemctl start containerd"
        )


def boot_units(node: SystemdNode) -> str:
    return node.run("ls /etc/systemd/system/driverforge-boot-* 2>/dev/null", check=False).stdout


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
