"""plan∘apply on a fake node: a run may be killed before any change that it makes, any number of times."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driverforge_driver.driver.converge import converge
from driverforge_driver.state.facts import Goal, WantedDriver
from driverforge_driver.state.observe import observe
from support.fakes.fakefiles import Killed
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeimage import DRIVER, write_image

UPSTREAM = "535.161.08"
IN_MEMORY = next((place for place in ("/dev/shm",) if Path(place).is_dir()), None)


def left_in_run(node: FakeNode) -> list[str]:
    return sorted(
        str(p.relative_to(node.folder / "run-nvidia"))
        for p in (node.folder / "run-nvidia").rglob("*")
        if p.is_file()
    )


def run_killed(node: FakeNode, wanted: WantedDriver, changes: int) -> None:
    """A run that dies after so many changes, between two steps or within one; or ends."""
    node.files.fuse.changes = changes
    with suppress(Killed):
        converge(node.host, wanted)
    node.files.fuse.changes = None


def end_state(node: FakeNode, wanted: WantedDriver) -> tuple[object, ...]:
    """Everything of a node that another program can see."""
    facts = observe(node.host, wanted)
    return (
        {name: (m.version, m.holders) for name, m in facts.loaded.items()},
        *(
            facts.root,
            facts.daemons_status,
            facts.digest,
            facts.stamp,
            facts.devices_missing,
            facts.firmware_missing,
        ),
        *(
            facts.firmware_path,
            facts.journal.firmware_path_before,
            dict(facts.parameter_files),
            sorted(node.mounts.made),
            left_in_run(node),
        ),
    )


RUNS = st.lists(
    st.tuples(
        st.sampled_from([Goal.SERVE, Goal.SERVE, Goal.LOAD, Goal.STOPPED, Goal.ABSENT]),
        st.sampled_from(["a", "b"]),  # configuration digests
        st.sampled_from([DRIVER, UPSTREAM]),
        st.integers(min_value=0, max_value=90),  # changes until it is killed
        st.booleans(),  # a new container comes next
    ),
    max_size=5,
)


def image_of(node: FakeNode, driver: str) -> None:
    node.files.remove_tree("/opt")
    write_image(node.files, driver=driver)


@given(runs=RUNS)
@settings(
    max_examples=settings.default.max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_after_any_number_of_kills_a_start_gives_the_state_of_a_first_start(
    runs: list[tuple[Goal, str, str, int, bool]],
) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        node, fresh = fake_node(Path(name) / "node"), fake_node(Path(name) / "fresh")
        for goal, digest, driver, changes, replaced in runs:
            image_of(node, driver)
            run_killed(
                node,
                WantedDriver(
                    goal=goal, driver=driver, names=("nvidia", "nvidia_uvm", "nvidia_modeset"), digest=digest
                ),
                changes,
            )
            if replaced:
                node.new_container()
        image_of(node, DRIVER)
        wanted = WantedDriver(
            goal=Goal.SERVE, driver=DRIVER, names=("nvidia", "nvidia_uvm", "nvidia_modeset"), digest="a"
        )
        for each in (node, fresh):
            converge(each.host, wanted)
        assert end_state(node, wanted) == end_state(fresh, wanted)
        for each in (node, fresh):
            converge(each.host, replace(wanted, goal=Goal.STOPPED))
        assert end_state(node, wanted) == end_state(fresh, wanted)
        assert left_in_run(node) == []
        assert node.mounts.made == []
