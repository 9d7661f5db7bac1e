"""Which check a component has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from driverforge_core.validations import Component
from driverforge_toolkit.validate import container_checks, driver_check, module_checks, sandbox_checks
from driverforge_toolkit.validate.context import Context, Validated

CHECKS: Mapping[Component, Callable[[Context], Validated]] = {
    Component.DRIVER: driver_check.check,
    Component.NVIDIA_FS: module_checks.check,
    Component.GDRCOPY: module_checks.check,
    Component.PEERMEM: module_checks.check,
    Component.MOFED: module_checks.check_mofed,
    Component.TOOLKIT: container_checks.check_toolkit,
    Component.CUDA: container_checks.check_cuda,
    Component.PLUGIN: container_checks.check_plugin,
    Component.VFIO_PCI: sandbox_checks.check_vfio,
    Component.VGPU_MANAGER: sandbox_checks.check_vgpu_manager,
    Component.VGPU_DEVICES: sandbox_checks.check_vgpu_devices,
    Component.CC_MANAGER: sandbox_checks.check_cc_manager,
}
"""All but metrics, which looks at several parts and does not end."""
