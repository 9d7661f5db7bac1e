"""From NVIDIA's own tool to ours and back on one live node: NVIDIA's nvidia-ctk configures containerd, ours is applied over it and
reverted, nvidia-ctk comes again. Each time the daemon serves, and nothing of the other's is left behind or lost.
"""

from __future__ import annotations

import os

import pytest

from support import gotools
from support.process import missing, run, until
from support.runtimenode import DAEMONS, PROGRAMS, RuntimeNode, open_node
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")),
        reason="containerd is unpacked from Debian's package",
    ),
]

RUNC = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""
THEIRS = {"nvidia": "/usr/bin/nvidia-container-runtime"}


def nvidia_ctk(node: RuntimeNode) -> None:
    """Their change, and the restart that they leave to their caller."""
    program = gotools.programs() / "nvidia-ctk"
    run(
        program,
        "runtime",
        "configure",
        "--runtime=containerd",
        f"--config={node.config}",
        f"--drop-in-config={node.drop_in}",
    )
    run(node.home / "restart")
    until(lambda: node.answers() is not None, "containerd", timeout=60, log=node.log)


@pytest.mark.parametrize("suite", [suite for kind, suite in DAEMONS if kind == "containerd"])
def test_there_and_back(suite: str) -> None:
    provided(gotools.programs)
    with provided(lambda: open_node("containerd", suite)) as node:
        node.start(RUNC)
        plain = node.handlers()
        nvidia_ctk(node)
        theirs, files = node.handlers(), node.snapshot()
        assert theirs == {**plain, **THEIRS}

        node.driverctl("apply")
        assert node.handlers() == {**plain, **PROGRAMS}
        node.driverctl("revert")
        assert (node.handlers(), node.snapshot()) == (theirs, files)

        node.driverctl("apply")
        nvidia_ctk(node)  # over ours, without asking us: it writes the drop-in anew, from the root file
        assert node.handlers() == theirs
        node.driverctl("revert")
        assert (node.handlers(), node.snapshot()) == (theirs, files), "what somebody wrote after us is theirs"
        assert not node.journal.exists()

        node.driverctl("revert", "--strip")
        assert node.handlers() == plain
        assert not node.drop_in.exists()
