"""The way back from a failed start: what is undone, what is forgotten, and what is said to be left."""

from __future__ import annotations

from typing import Any

import pytest

from driverforge_driver.driver import steps
from driverforge_driver.driver.converge import forget_steps, leftovers, undo_steps
from driverforge_driver.state.facts import RootState
from driverforge_driver.state.records import KernelJournal, RunningDaemon
from support.samples.driverfacts import DIGEST, DRIVER, facts, loaded, module, ready

OURS, THEIRS = RunningDaemon(name="nvidia-persistenced", pid=9), RunningDaemon(name="other", pid=10)


def test_daemons_that_the_start_started_are_stopped_before_anything_goes() -> None:
    before, now = ready(daemons=(THEIRS,), root=RootState.ABSENT), ready(daemons=(THEIRS, OURS))
    assert undo_steps(before, now) == (steps.StopDaemons(daemons=(OURS,)), steps.UnmountRoot())
    assert undo_steps(now, now) == ()
    assert undo_steps(now, before) == ()


@pytest.mark.parametrize(
    ("before", "now", "unmounts"),
    [
        (RootState.ABSENT, RootState.OURS, True),
        (RootState.OTHER, RootState.OURS, True),
        (RootState.OURS, RootState.OURS, False),
        (RootState.ABSENT, RootState.OTHER, False),
        (RootState.OURS, RootState.ABSENT, False),
        (RootState.ABSENT, RootState.ABSENT, False),
    ],
)
def test_a_root_is_unmounted_where_the_start_mounted_it(
    before: RootState, now: RootState, unmounts: bool
) -> None:
    assert undo_steps(ready(root=before), ready(root=now)) == ((steps.UnmountRoot(),) if unmounts else ())


@pytest.mark.parametrize(
    ("before", "now", "clears"),
    [(False, True, True), (True, True, False), (True, False, False), (False, False, False)],
)
def test_the_stage_is_cleared_where_the_start_left_it(before: bool, now: bool, clears: bool) -> None:
    found = undo_steps(ready(stage_left=before), ready(stage_left=now))
    assert found == ((steps.ClearStage(),) if clears else ())


@pytest.mark.parametrize(
    ("change", "forgets"),
    [
        ({"digest": "", "journal": KernelJournal()}, False),
        ({"digest": DIGEST, "journal": KernelJournal()}, True),
        ({"digest": "", "journal": KernelJournal(loading=DIGEST)}, True),
    ],
)
def test_a_record_of_a_load_is_forgotten_once_no_module_is_left(
    change: dict[str, Any], forgets: bool
) -> None:
    before, now = ready(), ready(loaded={}, **change)
    assert forget_steps(before, now) == ((steps.ForgetLoad(),) if forgets else ())
    assert forget_steps(before, ready(**change)) == ()


@pytest.mark.parametrize("state_left", [True, False])
def test_our_files_go_where_there_were_none(state_left: bool) -> None:
    found = forget_steps(facts(state_left=state_left), facts())
    assert found == (() if state_left else (steps.RemoveState(),))


def test_modules_that_came_went_and_changed_are_told() -> None:
    before = ready(loaded={"nvidia": module("nvidia", version="535.161.08"), "gdrdrv": module("gdrdrv")})
    now = ready(loaded={"nvidia": module("nvidia"), "nvidia_uvm": module("nvidia_uvm")})
    assert leftovers(before, now) == (
        "module nvidia_uvm is loaded and was not before",
        f"module gdrdrv {DRIVER} was loaded before and is not now",
        f"module nvidia is version {DRIVER} and was 535.161.08",
    )
    assert leftovers(ready(loaded=loaded()), ready(loaded=loaded())) == ()


@pytest.mark.parametrize("before", RootState)
@pytest.mark.parametrize("now", RootState)
def test_another_root_is_told(before: RootState, now: RootState) -> None:
    told = (f"/run/nvidia/driver is {now.value} and was {before.value}",)
    assert leftovers(ready(root=before), ready(root=now)) == (() if before is now else told)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("/srv/firmware", "/srv/firmware", ""),
        # a kernel without the path, and one where it is empty
        (None, "", ""),
        ("", None, ""),
        ("", "/srv/firmware", "is '/srv/firmware' and was ''"),
        ("/srv/firmware", None, "is None and was '/srv/firmware'"),
    ],
)
def test_another_firmware_path_is_told(before: str | None, now: str | None, told: str) -> None:
    lines = (f"the kernel's firmware search path {told}",) if told else ()
    assert leftovers(ready(firmware_path=before), ready(firmware_path=now)) == lines
