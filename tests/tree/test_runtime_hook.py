"""CRI-O's OCI hook, written to and taken from a fake node."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_core.errors import InputError
from driverforge_toolkit.runtime.backends import oci_hook
from support.fakes.fakehost import FakeNode, fake_node

HOOK = "/etc/hooks.d/nvidia.json"
PROGRAM = "/t/nvidia-container-runtime-hook"
THEIRS = b'{"hook": {"path": "/usr/bin/other"}}'


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return fake_node(tmp_path, gpu=False)


@pytest.mark.parametrize("before", [None, oci_hook.rendered("/usr/bin/nvidia-container-toolkit")])
def test_a_hook_of_nvidias_is_replaced_and_ours_goes(node: FakeNode, before: bytes | None) -> None:
    files = node.host.node
    if before is not None:
        files.make_dirs("/etc/hooks.d")
        files.write_atomic(HOOK, before)
    oci_hook.put_hook(node.host, HOOK, PROGRAM)
    assert files.read_bytes(HOOK) == oci_hook.rendered(PROGRAM)
    oci_hook.remove_hook(node.host, HOOK, PROGRAM)
    assert not files.exists(HOOK)


def test_a_hook_of_somebody_else_stays(node: FakeNode) -> None:
    files = node.host.node
    files.make_dirs("/etc/hooks.d")
    files.write_atomic(HOOK, THEIRS)
    with pytest.raises(InputError, match="is a hook of somebody else"):
        oci_hook.put_hook(node.host, HOOK, PROGRAM)
    oci_hook.remove_hook(node.host, HOOK, PROGRAM)
    assert files.read_bytes(HOOK) == THEIRS
