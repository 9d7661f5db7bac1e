"""Random edits of what a containerd has read, then apply or revert: it serves, or nothing was touched."""

from __future__ import annotations

import os
import random
import shutil

import pytest

from driverforge_core.errors import DriverforgeError
from support.machines.runtimenode import DAEMONS, NAMES, RuntimeNode, open_node
from support.process import missing
from support.samples import worstday
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid", "setpriv")),
        reason="containerd is unpacked from Debian's package",
    ),
]

DAYS = 50  # of each daemon, with --full


def live(node: RuntimeNode, seed: int) -> str:
    """One day. Returns what came of it."""
    draw = random.Random(seed)
    node.stop()
    shutil.rmtree(node.etc, ignore_errors=True)
    node.journal.unlink(missing_ok=True)
    node.etc.mkdir()
    node.start(None, worstday.start_files(node.etc))
    action = draw.choice(("apply", "revert"))
    if action == "revert":
        node.driverctl("apply")
    edits = worstday.edit(node.etc, draw)
    before = (node.snapshot(), node.pid, node.handlers())
    try:
        node.driverctl(action)
    except DriverforgeError as error:
        told = error.render()
        assert (node.snapshot(), node.pid, node.handlers()) == before, f"{seed} {action} {edits}: {told}"
        return f"{action} {edits}: refused: {told}"
    seen = node.answers()
    assert seen is not None, f"{seed} {action} {edits}"
    assert set(NAMES) & set(seen.handlers) == (set(NAMES) if action == "apply" else set()), edits
    return f"{action} {edits}: serves"


@pytest.mark.parametrize(
    ("suite", "days"),
    [
        ("sid", range(2)),
        *(
            pytest.param(suite, range(DAYS), marks=pytest.mark.full(reason="more of the same"))
            for kind, suite in DAEMONS
            if kind == "containerd"
        ),
    ],
)
def test_a_daemon_serves_afterwards_or_was_not_touched(suite: str, days: range) -> None:
    with provided(lambda: open_node("containerd", suite)) as node:
        for day in days:
            live(node, day)
