"""What the driver commands share: the wanted state from settings and options, the printed plan, the gate before each step."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from driverforge_core.errors import TemporaryFailure, Unsupported
from driverforge_core.names import NVIDIA_MODULES, PEERMEM
from driverforge_node import settings as settings_
from driverforge_node.driver import paths
from driverforge_node.driver.facts import Wanted
from driverforge_node.driver.loop import Declined, Gate, Stopped
from driverforge_node.driver.observe import observe, read, read_image
from driverforge_node.driver.plan import Blocked, Done, next_steps
from driverforge_node.driver.steps import Step
from driverforge_node.host.ports import Files, Host

BASE_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset")


def wanted_state(
    host: Host, goal: str, *, may_build: bool = True, jobs: int = 0, headers: str = "", work: str = ""
) -> Wanted:
    """The wanted state from the environment, the image and the operator's parameter files. Raises InputError, Unsupported."""
    settings = settings_.parse(host.environ)
    image = read_image(host.files)
    driver = settings.driver_version or (image.driver.text if image else "")
    if not driver and goal in ("serve", "load"):
        raise Unsupported(
            "the driver version is not known",
            details=["DRIVER_VERSION is not set", f"{paths.IMAGE} is missing"],
            resolution="run driverctl from an image that `driverforge build` made",
        )
    asked = (*BASE_MODULES, *((PEERMEM,) if settings.gpu_direct_rdma else ()))
    parameters = read_parameters(host.files)
    digest = settings.config_digest or own_digest(driver, settings.module_type, asked, parameters)
    return Wanted(
        goal=goal,
        driver=driver,
        module_type=settings.module_type,
        names=BASE_MODULES,
        peermem=settings.gpu_direct_rdma,
        host_network=settings.host_mofed,
        parameters=parameters,
        digest=digest,
        may_build=may_build,
        jobs=jobs,
        headers=headers,
        work=work,
    )


def read_parameters(files: Files) -> dict[str, tuple[str, ...]]:
    """The operator's kernelModuleConfig: /drivers/nvidia-uvm.conf and so on, a parameter a line; comments and empty lines are none."""
    found = {}
    for name in NVIDIA_MODULES:
        lines = read(files, f"{paths.PARAMETER_FILES}/{name.replace('_', '-')}.conf").splitlines()
        found[name] = tuple(
            line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")
        )
    return {name: words for name, words in found.items() if words}


def own_digest(
    driver: str, module_type: str, names: tuple[str, ...], parameters: Mapping[str, tuple[str, ...]]
) -> str:
    """A configuration digest for a start without an operator: over everything that decides what is loaded and how."""
    content = json.dumps(
        [driver, module_type, names, {name: list(words) for name, words in sorted(parameters.items())}]
    )
    return hashlib.sha256(content.encode()).hexdigest()


def print_plan(host: Host, wanted: Wanted, out: TextIO) -> int:
    """The stretch that can be decided now and what has to be seen before the rest; raises what blocks it. Changes nothing."""
    plan = next_steps(observe(host, wanted), wanted)
    if isinstance(plan, Blocked):
        raise plan.error
    if isinstance(plan, Done):
        print("nothing to do", file=out)
        for line in plan.left:
            print(f"left as it is: {line}", file=out)
        return 0
    if plan.reason:
        print(f"because {plan.reason}", file=out)
    for number, step in enumerate(plan.steps, 1):
        print(f"step {number}: {step.describe()}", file=out)
    for text in plan.unknown:
        print(f"not known yet: {text}", file=out)
    return 0


def gate_for(host: Host, *, confirm: bool, answers: TextIO | None = None, out: TextIO | None = None) -> Gate:
    """A gate that lets a stop signal end the run between two steps and, with `confirm`, asks before each one.

    It asks on standard output and input unless other files are given. Raises Stopped, Declined.
    """

    def gate(number: int, step: Step) -> None:
        heed_signal(step)
        if not confirm:
            return
        print(f"step {number}: {step.describe()} [Y/n]", file=out or sys.stdout, flush=True)
        answer = (answers or sys.stdin).readline()
        heed_signal(step)  # one that came while the question was open
        if answer.strip().lower() not in ("", "y", "yes") or not answer:
            raise Declined(
                f"not confirmed: {step.describe()}",
                resolution="start again and say yes, or leave out --confirm",
            )

    def heed_signal(step: Step) -> None:
        if signal := host.clock.wait(0):
            raise Stopped(f"stopped by {signal} before: {step.describe()}")

    return gate


@contextmanager
def exclusive(host: Host, pid: int) -> Iterator[None]:
    """Hold the node's driver lock (upstream's PID file). Raises TemporaryFailure, with all files left alone, when another has it."""
    host.files.make_dirs(paths.RUN)
    with host.files.lock(paths.LOCK, text=f"{pid}\n") as won:
        if not won:
            holder = read(host.files, paths.LOCK).strip()
            raise TemporaryFailure(
                f"another instance serves this node's driver: PID {holder or 'unknown'}",
                details=[f"it holds the lock on {paths.LOCK}"],
                resolution="stop that one first (delete its pod, or kill -TERM its PID); nothing was changed",
            )
        yield
