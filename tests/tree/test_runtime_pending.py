"""A change that was written and that docker has not heard of: the next driverctl gives it what it needs, and
no more. On a fake node.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakedocker import CONFIG, FakeDocker
from support.fakes.fakehost import fake_node


@pytest.fixture
def docker(tmp_path: Path) -> FakeDocker:
    return FakeDocker(node=fake_node(tmp_path, gpu=False))


def run(
    docker: FakeDocker,
    action: Literal["apply", "revert"] = "apply",
    *,
    cdi: bool = False,
    restarts: bool = True,
) -> None:
    request = RuntimeRequest(
        wanted=wanted_handlers(cdi=cdi),
        restart_command="restart",
        restart_mode="" if restarts else "none",
        patience=1.0,
    )
    system = RuntimeSystem(host=docker.node.host, sockets=docker, request=request)
    plan = plans.apply_plan(system) if action == "apply" else plans.revert_plan(system)
    assert plan is not None
    change.carry_out(plan, system)


def state(docker: FakeDocker) -> str:
    (entry,) = journal.entries(docker.node.host)
    return entry.state


def test_what_needs_a_restart_gets_one_later_too(docker: FakeDocker) -> None:
    run(docker, cdi=True, restarts=False)
    assert (docker.starts, docker.reloads, state(docker)) == (1, 0, "written")
    run(docker, cdi=True)
    assert (docker.starts, docker.running["features"], state(docker)) == (2, {"cdi": True}, "in force")
    run(docker, cdi=True)
    assert (docker.starts, docker.reloads) == (2, 0)


def test_what_is_taken_out_needs_one_just_as_well(docker: FakeDocker) -> None:
    """The file without it does not tell."""
    run(docker, cdi=True)
    run(docker, restarts=False)
    run(docker)
    assert (docker.starts, docker.running.get("features", {}), state(docker)) == (3, {}, "in force")


def test_a_reload_in_between_does_not_hide_it(docker: FakeDocker) -> None:
    run(docker, cdi=True, restarts=False)
    run(docker, cdi=True, restarts=False)
    run(docker, cdi=True)
    assert (docker.starts, state(docker)) == (2, "in force")


def test_what_a_reload_is_enough_for_gets_no_restart(docker: FakeDocker) -> None:
    run(docker, restarts=False)
    run(docker)
    assert (docker.starts, docker.reloads, state(docker)) == (1, 1, "in force")
    assert "nvidia" in str(docker.running["runtimes"])


def test_a_restart_by_somebody_else_is_enough(docker: FakeDocker) -> None:
    run(docker, cdi=True, restarts=False)
    docker.restart()
    run(docker, cdi=True)
    assert (docker.starts, docker.reloads, state(docker)) == (2, 0, "in force")


@pytest.mark.parametrize("times", [1, 2])
def test_a_revert_takes_out_what_is_in_force_and_not_only_what_was_written_last(
    docker: FakeDocker, times: int
) -> None:
    """The change that nobody restarted docker for has no CDI, and docker runs with the one before it."""
    theirs = {"runtimes": {"kata": {"path": "/usr/bin/kata"}}}
    docker.node.host.node.write_atomic(CONFIG, json.dumps(theirs).encode())
    docker.restart()
    run(docker, cdi=True)
    for _ in range(times):
        run(docker, restarts=False)
    (entry,) = journal.entries(docker.node.host)
    assert entry.earlier is not None
    assert (entry.state, entry.earlier.state, entry.earlier.earlier) == ("written", "in force", None)
    assert docker.running["features"] == {"cdi": True}
    run(docker, "revert")
    assert (docker.starts, docker.running) == (4, theirs)
