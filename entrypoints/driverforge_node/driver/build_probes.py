"""Header probes before a compiler runs: a kernel that this driver cannot be compiled for is named in milliseconds."""

from __future__ import annotations

from driverforge_core.errors import Unsupported
from driverforge_core.image import ImageFacts
from driverforge_core.kernel import KernelRelease
from driverforge_node import catalogue
from driverforge_node.family import HeaderTree, config_value
from driverforge_node.host.ports import Files


def check(
    files: Files, tree: HeaderTree, image: ImageFacts, module_types: tuple[str, ...], kernel: KernelRelease
) -> None:
    """Raises Unsupported with the reason and the line of the header that shows it."""
    if config_value(files.read_text(f"{tree.output}/.config"), "CONFIG_PREEMPT_RT") == "y":
        raise Unsupported(
            f"kernel {kernel} is a real-time kernel (PREEMPT_RT), which NVIDIA's modules refuse",
            details=[f"CONFIG_PREEMPT_RT=y in the headers of {kernel}"],
            resolution="boot the same kernel in its normal flavour",
        )
    for rule in catalogue.PROBES:
        header = f"{tree.source}/{rule.probe.header}"
        if not rule.concerns(image.driver, module_types, kernel) or not files.exists(header):
            continue
        evidence = rule.probe.breaks(files.read_text(header))
        if evidence is not None:
            raise Unsupported(
                f"driver {image.driver} does not compile for kernel {kernel}: {rule.reason}",
                details=[evidence],
                resolution="use a newer driver branch, or boot an older kernel of this series",
            )
