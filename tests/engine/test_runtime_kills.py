"""SIGKILL before each change that driverctl makes, at random moments, and while containerd is down: the node
restores, or the next start finishes.

Nobody runs systemd here: the restore is the detached process. test_runtime_systemd.py has the one with a
timer.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.transaction import restore
from support.machines.killednode import PACKAGES, killed, marks, with_a_victim
from support.machines.runtimenode import NAMES, RuntimeNode, Snapshot, open_node
from support.process import Finished, missing, until
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")),
        reason="containerd is unpacked from Debian's package",
    ),
]

TEXT = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "x" # ours\n'
BOUNDARIES = 16  # changes of an apply, and of a revert


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[RuntimeNode]:
    """A node with the containerd of a Debian suite, bookworm's (1.6) unless a test names another."""
    suite = getattr(request, "param", "bookworm")
    with provided(lambda: open_node("containerd", suite)) as opened:
        opened.start(TEXT)
        yield opened


def what(done: Finished) -> str:
    return next((line for line in done.stderr.splitlines() if line.startswith("killed before: ")), "")


def files(snapshot: Snapshot) -> Snapshot:
    """Without folders: an empty one of ours may be left until the next driverctl."""
    return {name: found for name, found in snapshot.items() if found[1] is not None}


def the_node_is_done(done: Finished) -> None:
    """Wait for the restore; one whose process was never started waits for the next driverctl."""
    until(
        lambda: not marks("firing") and (not marks("armed") or f"{restore.SCRIPT} stay" in what(done)),
        "the restore",
        timeout=60,
    )


STRIDES = pytest.mark.parametrize(
    "stride", [3, pytest.param(1, marks=pytest.mark.full(reason="a kill before each of sixteen changes"))]
)


@STRIDES
def test_a_kill_before_a_change_of_an_apply(node: RuntimeNode, stride: int) -> None:
    untouched = node.snapshot()
    for number in range(1, 100, stride):
        done = killed(node, "apply", number)
        if done.status == 0:
            break
        assert done.status == -signal.SIGKILL, done.stderr
        the_node_is_done(done)
        until(lambda: node.answers() is not None, "containerd", timeout=60, log=node.log)
        # whatever happened, the daemon serves, with all of the change or nothing of it
        there = set(node.handlers())
        assert (there, node.snapshot() == untouched) in (({"runc"}, True), ({"runc", *NAMES}, False)), what(
            done
        )
        node.driverctl("apply")
        assert set(node.handlers()) == {"runc", *NAMES}, what(done)
        restarts, files = node.restarts(), node.marks()
        node.driverctl("apply")
        assert (node.restarts(), node.marks()) == (restarts, files), what(done)
        node.driverctl("revert")
        assert (node.snapshot(), set(node.handlers()), node.journal.exists()) == (
            untouched,
            {"runc"},
            False,
        ), what(done)
        assert not list(Path(restore.FOLDER).iterdir()), what(done)
    assert number - stride <= BOUNDARIES < number


@STRIDES
def test_a_kill_before_a_change_of_a_revert(node: RuntimeNode, stride: int) -> None:
    untouched = node.snapshot()
    for number in range(1, 100, stride):
        node.driverctl("apply")
        applied = node.snapshot()
        done = killed(node, "revert", number)
        if done.status == 0:
            break
        assert done.status == -signal.SIGKILL, done.stderr
        the_node_is_done(done)
        until(lambda: node.answers() is not None, "containerd", timeout=60, log=node.log)
        there = set(node.handlers())
        assert (there, files(node.snapshot())) in (
            ({"runc"}, files(untouched)),
            ({"runc", *NAMES}, files(applied)),
        ), what(done)
        node.driverctl("revert")
        assert (node.snapshot(), set(node.handlers()), node.journal.exists()) == (
            untouched,
            {"runc"},
            False,
        ), what(done)
        assert not list(Path(restore.FOLDER).iterdir()), what(done)
    assert number - stride <= BOUNDARIES < number
    assert node.snapshot() == untouched


def killed_after(node: RuntimeNode, action: str, seconds: float) -> float:
    """A driverctl that is killed so many seconds after its start, with whatever it has started and waits for.

    So ends a container: what has a session of its own lives on, the daemon and the node's restore. Returns
    the seconds that it had.
    """
    code = "import sys; from driverctl.cli import main; sys.argv[0] = 'driverctl'; main()"
    words = [sys.executable, "-c", code, *node.words(action)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES[0])}
    begun = time.monotonic()
    with (
        (node.home / "driverctl.log").open("ab") as log,
        subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True) as child,
    ):
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
        lived = time.monotonic() - begun
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return lived


def the_restores_are_done() -> bool:
    """None acts. One that was never seen running is none: nothing was changed before that."""
    return not marks("firing") and not any((mark.parent / "seen").exists() for mark in marks("armed"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("node", "kills"),
    [
        ("bookworm", 3),
        *(
            pytest.param(suite, 100, marks=pytest.mark.full(reason="ten minutes on each containerd"))
            for suite in ("bookworm", "trixie", "sid")
        ),
    ],
    indirect=["node"],
)
def test_kills_at_random_moments(node: RuntimeNode, kills: int) -> None:
    """The moments are drawn with a seed; what driverctl does then depends on the machine, too."""
    draw = random.Random(kills)
    untouched = node.snapshot()
    longest = {"apply": killed_after(node, "apply", 60)}
    applied = node.snapshot()
    assert set(node.handlers()) == {"runc", *NAMES}
    longest["revert"] = killed_after(node, "revert", 60)
    for number in range(kills):
        action = "revert" if node.journal.exists() else "apply"
        # its first third is the start of the interpreter, and looking around
        seconds = draw.uniform(0.3, 1.0) * longest[action]
        killed_after(node, action, seconds)
        moment = f"kill {number}: {action} after {seconds:.3f} s"
        until(the_restores_are_done, f"the restore of {moment}", timeout=120, log=node.log)
        until(lambda: node.answers() is not None, f"containerd after {moment}", timeout=60, log=node.log)
        whole = (({"runc"}, files(untouched)), ({"runc", *NAMES}, files(applied)))
        assert (set(node.handlers()), files(node.snapshot())) in whole, moment
        if then := draw.choice(["", "apply", "revert"]):
            node.driverctl(then)
            found = set(node.handlers()), files(node.snapshot())
            assert found == whole[then == "apply"], f"{moment}, then {then}"
    node.driverctl("revert")
    assert (node.snapshot(), set(node.handlers()), node.journal.exists()) == (untouched, {"runc"}, False)
    assert not list(Path(restore.FOLDER).iterdir())
    assert not list(Path(journal.FOLDER).glob(".driverforge-*"))


def test_killed_while_containerd_is_down_the_node_starts_it_with_the_old_files(node: RuntimeNode) -> None:
    untouched = node.snapshot()
    once = node.home / "once"
    once.touch()
    with_a_victim(node, f"if rm {once} 2>/dev/null; then kill -9 $victim; exit 1; fi")
    # nobody runs driverctl again: the node does it alone
    until(lambda: node.answers() is not None, "containerd", timeout=60, log=node.log)
    until(lambda: bool(marks("restored")), "the restore", timeout=60)
    assert (node.snapshot(), set(node.handlers())) == (untouched, {"runc"})
    node.driverctl("apply")
    assert set(node.handlers()) == {"runc", *NAMES}
    assert not list(Path(restore.FOLDER).iterdir())


def test_a_change_that_kills_the_daemon_for_good_is_undone_by_the_node(node: RuntimeNode) -> None:
    """Ours dies during the proof of life of a daemon that does not come back with the new files."""
    untouched = node.snapshot()
    with_a_victim(node, f"if grep -qs nvidia {node.drop_in}; then kill -9 $victim; exit 1; fi")
    until(lambda: bool(marks("restored")), "the restore", timeout=60)
    until(lambda: node.answers() is not None, "containerd", timeout=60, log=node.log)
    assert (node.snapshot(), set(node.handlers())) == (untouched, {"runc"})
    node.write_restart()
    node.driverctl("revert")
    assert (node.snapshot(), node.journal.exists()) == (untouched, False)
