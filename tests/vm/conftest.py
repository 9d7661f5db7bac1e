"""Kernels and guests for the tests of this tier.

Kernels are chosen by rule: the newest of a series that drivers compile for.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.machines import kernels, kmods, qemu
from support.machines.guest import Machine
from support.machines.kernels import Image, Kernel
from support.process import require
from support.scheduling import Grouped
from support.skipping import provided

# its tests have a guest each and share nothing; together they would be most of the tier with one worker
APART = ("test_node_lifecycle",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in APART)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Grouped:
    return Grouped(config, log, lambda module, test: test if module in APART else None)


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    provided(
        lambda: require(
            qemu.PROGRAM, "qemu-img", "busybox", "kmod", "depmod", "setpriv", "mke2fs", "make", "strip"
        )
    )


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The newest 6.1 cloud kernel of Debian 12 that drivers of branches up to 570 compile for."""
    return provided(lambda: kernels.newest("6.1"))


@pytest.fixture(scope="session")
def kernel_612() -> Kernel:
    """The newest such kernel of series 6.12."""
    return provided(lambda: kernels.newest("6.12"))


@pytest.fixture(scope="session")
def image(kernel: Kernel) -> Image:
    """The 6.1 kernel to boot."""
    return provided(lambda: kernels.image(kernel.release))


@pytest.fixture(scope="session")
def machine(image: Image) -> Machine:
    """A busybox guest with room for the software-only PCI function."""
    return Machine(image=image, append=kmods.GPU_MEMORY)
