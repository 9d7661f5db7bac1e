"""Who uses the driver: told with the version that is loaded, the process, its container and pod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from driverforge_driver.driver.usage import describe_use, in_use_error
from driverforge_host.ports import Holder, LoadedModule, describe_holder
from support.samples.driverfacts import loaded, module, ready

TRAINER = Holder(pid=812, command="python3", path="/dev/nvidia0", container="", pod="")


@pytest.mark.parametrize(
    ("modules", "version"),
    [(loaded("535.161.08"), "535.161.08"), ({"nvidia_uvm": module("nvidia_uvm")}, "?")],
)
def test_a_refusal_names_the_version_in_use(modules: dict[str, LoadedModule], version: str) -> None:
    error = in_use_error(ready(loaded=modules, holders=(TRAINER,)))
    assert error is not None
    assert error.brief == f"the NVIDIA driver {version} is in use"
    assert error.details == ("process 812 (python3, on the host) holds /dev/nvidia0",)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ({}, "python3, on the host"),
        ({"container": "c" * 64}, "python3, container cccccccccccc"),
        ({"container": "c" * 64, "pod": "6f0f"}, "python3, container cccccccccccc, pod 6f0f"),
    ],
)
def test_a_holder_is_told_with_its_container_and_pod(where: dict[str, Any], told: str) -> None:
    assert describe_holder(replace(TRAINER, **where)) == f"process 812 ({told}) holds /dev/nvidia0"


def test_references_are_counted_only_where_nobody_is_seen() -> None:
    found = ready(loaded={**loaded(extra=2), "gdrdrv": module("gdrdrv", refcount=3)}, holders=(TRAINER,))
    assert describe_use(found) == (describe_holder(TRAINER), "module gdrdrv depends on the driver")
    unseen = ready(loaded=loaded(extra=2), daemon_references={"nvidia": 1})
    assert describe_use(unseen) == ("module nvidia has 1 references that no visible process explains",)
    assert describe_use(ready(loaded=loaded(extra=1), daemon_references={"nvidia": 1})) == ()
    assert describe_use(ready(loaded={}, holders=(TRAINER,))) == ()
