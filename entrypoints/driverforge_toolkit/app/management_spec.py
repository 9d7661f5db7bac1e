"""The CDI specification for management containers, and the control devices that it names.

Both as the toolkit's settings ask for them.
"""

from __future__ import annotations

from driverforge_core import log
from driverforge_host.gpu.device_files import PROC_DEVICES, control_files, device_majors
from driverforge_host.gpu.roots import DriverRoots, view_of
from driverforge_host.ports import Host, text_of
from driverforge_toolkit.cdi.generate import generate_management
from driverforge_toolkit.devices import repair
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.toolkit.settings import ToolkitSettings


def roots_of(settings: ToolkitSettings) -> DriverRoots:
    """Where the settings say that the driver and its devices are."""
    return DriverRoots(
        driver=settings.driver_root,
        driver_here=settings.driver_root_ctr_path,
        dev=settings.dev_root or settings.driver_root,
        dev_here=settings.dev_root_ctr_path or settings.driver_root_ctr_path,
    )


def write_management_spec(host: Host, settings: ToolkitSettings, layout: Layout) -> None:
    """Make the control device files, where asked for, and write the management specification.

    Raises Unavailable without a driver or its devices.
    """
    roots = roots_of(settings)
    if settings.create_device_nodes == "control":
        seen = view_of(host, roots)
        majors = device_majors(text_of(seen.system, PROC_DEVICES))
        repairs = repair.plan_files(seen.dev, control_files(majors))
        repair.make_files(seen.dev, repairs)
        for each in repairs:
            log.info(each.describe())
    generate_management(
        host,
        driver_root=roots.driver,
        driver_root_ctr=roots.driver_here,
        dev_root=roots.dev,
        dev_root_ctr=roots.dev_here,
        output_dir=settings.cdi_output_dir,
        kind=settings.cdi_kind,
        hook_path=f"{layout.toolkit}/nvidia-cdi-hook",
    )
