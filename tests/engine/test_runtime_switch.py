"""From NVIDIA's own tool to ours and back on one live node: NVIDIA's nvidia-ctk configures containerd, ours
is applied over it and reverted, nvidia-ctk comes again. Each time the daemon serves, and nothing of the
other's is left behind or lost. Once with the program itself, and once with the record of what it does, which
needs no program.
"""

from __future__ import annotations

import os

import pytest

from support.machines.runtimenode import DAEMONS, PROGRAMS, RuntimeNode, open_node
from support.process import missing, run, until
from support.skipping import provided
from support.upstream import gotools, recordedctk

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


def nvidia_ctk(node: RuntimeNode, *, real: bool) -> None:
    """Their change, and the restart that they leave to their caller."""
    recordedctk.configure(node.home, node.config, node.drop_in, real=real)
    run(node.home / "restart")
    until(lambda: node.answers() is not None, "containerd", timeout=60, log=node.log)


@pytest.mark.parametrize(
    ("suite", "real"),
    [
        pytest.param(
            suite,
            real,
            marks=() if suite == "sid" and not real else pytest.mark.full(reason="more of the same"),
        )
        for kind, suite in DAEMONS
        if kind == "containerd"
        for real in (True, False)
    ],
)
def test_there_and_back(suite: str, real: bool) -> None:
    if real:
        provided(gotools.programs)
    with provided(lambda: open_node("containerd", suite)) as node:
        node.start(RUNC)
        plain = node.handlers()
        nvidia_ctk(node, real=real)
        theirs, files = node.handlers(), node.snapshot()
        assert theirs == {**plain, **THEIRS}

        node.driverctl("apply")
        assert node.handlers() == {**plain, **PROGRAMS}
        node.driverctl("revert")
        assert (node.handlers(), node.snapshot()) == (theirs, files)

        node.driverctl("apply")
        # over ours, without asking us: it writes the drop-in anew, from the root file
        nvidia_ctk(node, real=real)
        assert node.handlers() == theirs
        node.driverctl("revert")
        assert (node.handlers(), node.snapshot()) == (theirs, files), "what somebody wrote after us is theirs"
        assert not node.journal.exists()

        node.driverctl("revert", "--strip")
        assert node.handlers() == plain
        assert not node.drop_in.exists()
