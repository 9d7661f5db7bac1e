"""The way out for a real containerd 1.6 whose CRI plugin does not load, since its default runtime is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from driverctl import cli
from driverforge_core.errors import Unavailable, Unsupported
from driverforge_host.adapters.real import real_host
from support.machines.runtimenode import NAMES, RuntimeNode, open_node
from support.process import missing, run, until
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")),
        reason="containerd is unpacked from Debian's package",
    ),
]

CRI = 'plugins."io.containerd.grpc.v1.cri"'
RUNC = f'[{CRI}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
DEFAULT = f'[{CRI}.containerd]\n  default_runtime_name = "nvidia"\n'


@pytest.fixture
def node() -> Iterator[RuntimeNode]:
    with provided(lambda: open_node("containerd", "bookworm")) as opened:
        yield opened


def lose_handlers(node: RuntimeNode) -> None:
    """Somebody restarts containerd with our handler as the default, and without the handler."""
    run(node.home / "restart")
    until(node.cannot_serve, "containerd without its CRI plugin", timeout=60, log=node.log)


@pytest.mark.parametrize("changed", [True, False])
def test_apply_brings_the_handlers_back(node: RuntimeNode, *, changed: bool) -> None:
    node.start(f"version = 2\n{RUNC}")
    if changed:
        node.driverctl("apply")
        node.drop_in.unlink()
    node.config.write_text(f"version = 2\n{DEFAULT}{RUNC}")
    lose_handlers(node)
    node.driverctl("apply")
    seen = node.answers()
    assert seen is not None
    assert (seen.default, set(seen.handlers)) == ("nvidia", {"runc", *NAMES})


def test_a_revert_names_the_line_and_strip_takes_it_out(node: RuntimeNode) -> None:
    node.start(f"version = 2\n{RUNC}")
    node.driverctl("apply")
    node.drop_in.unlink()
    node.config.write_text(f"version = 2\n{DEFAULT}{RUNC}")
    lose_handlers(node)
    args = node.words("revert")
    before = node.snapshot()
    with pytest.raises(Unsupported, match="could not serve pods") as caught:
        cli.run(args, real_host)
    assert f'{node.config}:3: default_runtime_name = "nvidia"' in caught.value.details
    assert "driverctl runtime revert --strip" in caught.value.resolution
    assert node.snapshot() == before
    node.driverctl("revert", "--strip")
    seen = node.answers()
    assert seen is not None
    assert (seen.default, set(seen.handlers)) == ("runc", {"runc"})
    assert not node.journal.exists()


def test_without_a_change_of_ours_a_revert_says_what_is_wrong(node: RuntimeNode) -> None:
    node.start(f"version = 2\n{RUNC}")
    node.config.write_text(f"version = 2\n{DEFAULT}{RUNC}")
    lose_handlers(node)
    with pytest.raises(Unsupported, match="nothing to revert, and containerd cannot serve pods") as caught:
        cli.run(node.words("revert"), real_host)
    assert f'{node.config}:3: default_runtime_name = "nvidia"' in caught.value.details
    node.driverctl("revert", "--strip")
    assert set(node.handlers()) == {"runc"}


def test_files_that_were_mended_by_hand_need_a_restart_and_are_told_so(node: RuntimeNode) -> None:
    node.start(f"version = 2\n{RUNC}")
    node.config.write_text(f"version = 2\n{DEFAULT}{RUNC}")
    lose_handlers(node)
    node.config.write_text(f"version = 2\n{RUNC}")
    with pytest.raises(Unavailable, match="its CRI plugin is not loaded") as caught:
        cli.run(node.words("apply"), real_host)
    assert (
        f"restart it, if they were mended since it started ({node.home}/restart)" in caught.value.resolution
    )


def test_a_revert_of_files_that_are_whole_starts_what_serves_no_pods(node: RuntimeNode) -> None:
    """Our files are out, by hand; what runs has read others."""
    node.start(f"version = 2\n{RUNC}")
    node.driverctl("apply")
    node.drop_in.unlink()
    node.config.write_text(f"version = 2\n{DEFAULT}{RUNC}")
    lose_handlers(node)
    node.config.write_text(f"version = 2\n{RUNC}")
    node.driverctl("revert")
    assert set(node.handlers()) == {"runc"}
