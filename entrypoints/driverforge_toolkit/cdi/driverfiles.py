"""Files of a driver that a container gets: libraries, firmware, programs, sockets, graphics configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from posixpath import basename, dirname

from driverforge_host.gpu.roots import DriverView, below
from driverforge_host.ports import text_of
from driverforge_toolkit.cdi.hooks import CREATE_SYMLINKS, CUDA_COMPAT, HookProgram
from driverforge_toolkit.cdi.libraries import FOLDERS, DriverLibraries, libraries, symlinks
from driverforge_toolkit.cdi.spec import ContainerEdits, SpecHook, SpecMount

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
# connecting to a socket needs write permission; nothing there is to be executed
# (nvidia-container-toolkit#707)
SOCKET = ("nosuid", "nodev", "rbind", "rprivate", "noexec")

PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
GRAPHICS_PROGRAMS = ("nvidia-xconfig",)  # writes xorg.conf
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_SOCKETS = (
    "/run/nvidia-persistenced/socket",
    "/run/nvidia-fabricmanager/socket",
    "/tmp/nvidia-mps",  # noqa: S108
)
_CONFIGS = (
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    *(
        f"/usr/share/egl/egl_external_platform.d/{name}.json"
        for name in (
            "09_nvidia_wayland2",
            "10_nvidia_wayland",
            "15_nvidia_gbm",
            "20_nvidia_xcb",
            "20_nvidia_xlib",
        )
    ),
    "/usr/share/nvidia/nvoptix.bin",
    "/usr/share/X11/xorg.conf.d/10-nvidia.conf",
    "/usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "/etc/OpenCL/vendors/nvidia.icd",
    *(
        f"/etc/vulkan/icd.d/{name}.json"
        for name in ("nvidia_icd", "nvidia_layers", "nvidia_icd.x86_64", "nvidia_icd.aarch64")
    ),
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
)
_CONFIG_FOLDERS = ("/etc", "/usr/local/share", "/usr/share")
# external EGL platforms have versions of their own, not the driver's
_GRAPHICS = ("gbm", "wayland", "wayland2", "xcb", "xlib")
_EXPLICIT = (
    "libEGL.so",
    "libGL.so",
    "libGLESv1_CM.so",
    "libGLESv2.so",
    "libGLX.so",
    "libGLdispatch.so",
    "libOpenCL.so",
    "libOpenGL.so",
    "libnvidia-api.so",
    "libnvidia-egl-xcb.so",
    "libnvidia-egl-xlib.so",
)
_NVSDM = ("libnvsdm.so.1", "libibumad.so.3", "libibmad.so.5")
_XORG = (
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
)
_XORG_BASES = ("/usr/lib", "/usr/lib64", "/usr/X11R6/lib", "/usr/X11R6/lib64")


class FeatureFlag(str, Enum):
    """What a spec leaves out or takes in on request; upstream's --feature-flag."""

    NO_GIDS = "no-additional-gids-for-device-nodes"
    NO_SOCKETS = "disable-ipc-discoverer"
    EXPLICIT_LIBRARIES = "enable-explicit-driver-libraries"


@dataclass(frozen=True, slots=True, kw_only=True)
class EditOptions:
    """How a container's edits are made. `config_folders` are searched instead of the usual ones."""

    hooks: HookProgram
    flags: frozenset[FeatureFlag] = frozenset()
    config_folders: tuple[str, ...] = ()


def driver_edits(view: DriverView, driver: DriverLibraries, options: EditOptions) -> ContainerEdits:
    """Mounts, hooks and environment that every container with this driver gets.

    The hooks are in the order in which upstream runs them.
    """
    found = mounts(view, (*driver.libraries, *_explicit_libraries(view, options)))
    others = [
        *mounts(view, () if FeatureFlag.NO_SOCKETS in options.flags else sockets(view), SOCKET),
        *mounts(view, firmware(view, driver.version)),
        *mounts(view, programs(view, PROGRAMS)),
    ]
    return ContainerEdits(
        env=(f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(driver.folders)}",),
        mounts=(*found, *others),
        hooks=(
            *options.hooks.make(
                CREATE_SYMLINKS, *symlinks(view.driver, [mount.container_path for mount in found])
            ),
            *options.hooks.make(CUDA_COMPAT, f"--host-driver-version={driver.version}"),
            *options.hooks.update_ldcache(found),
        ),
    )


def mounts(
    view: DriverView, paths: Iterable[str], options: tuple[str, ...] = READ_ONLY
) -> tuple[SpecMount, ...]:
    """Mounts of paths below the driver root, each at the same path in the container.

    On the host's side links are followed: an absolute link would lead out of the driver root there.
    """
    return tuple(
        SpecMount(host_path=_host_path(view, path), container_path=path, options=options)
        for path in dict.fromkeys(paths)
    )


def _host_path(view: DriverView, path: str) -> str:
    return below(view.roots.driver_seen, view.driver.resolve(path))


def _explicit_libraries(view: DriverView, options: EditOptions) -> list[str]:
    if FeatureFlag.EXPLICIT_LIBRARIES not in options.flags:
        return []
    return [path for name in _EXPLICIT for path in libraries(view.driver, FOLDERS, name)]


def nvsdm_edits(view: DriverView, driver: DriverLibraries) -> ContainerEdits:
    """NVSDM, by which DCGM asks NVLink switches, and what it needs. Neither has the driver's version."""
    found = (path for name in _NVSDM for path in libraries(view.driver, driver.folders, name))
    return ContainerEdits(mounts=mounts(view, found))


def sockets(view: DriverView) -> list[str]:
    return [path for path in _SOCKETS if view.driver.exists(path)]


def programs(view: DriverView, names: Iterable[str]) -> list[str]:
    """The first of each name in the usual folders for programs."""
    places = (
        [f"{folder}/{name}" for folder in _PATH if _executable(view, f"{folder}/{name}")] for name in names
    )
    return [paths[0] for paths in places if paths]


def _executable(view: DriverView, path: str) -> bool:
    found = view.driver.metadata(path)
    return found is not None and bool(found.mode & 0o111) and not view.driver.is_dir(path)


def firmware(view: DriverView, version: str) -> list[str]:
    """Firmware of the GSP, and since R615 ucodes*.bin, where the kernel looks for it.

    See Documentation/driver-api/firmware/fw_search_path.rst.
    """
    extra = text_of(view.system, "/sys/module/firmware_class/parameters/path").strip(" \n\0")
    release = text_of(view.system, "/proc/sys/kernel/osrelease").strip()
    parts = [f"/{release}", ""] if release else [""]
    kernels = [f"{base}{part}" for base in ("/lib/firmware/updates", "/lib/firmware") for part in parts]
    folders = [f"{base}/nvidia/{version}" for base in ([extra] if extra else []) + kernels]
    found = [f"{folder}/{name}" for folder in folders for name in view.driver.list_dir(folder)]
    return [path for path in found if basename(path).startswith(("gsp", "ucodes")) and path.endswith(".bin")]


def graphics_edits(view: DriverView, driver: DriverLibraries, options: EditOptions) -> ContainerEdits:
    """Libraries, programs and configuration of OpenGL, EGL, Vulkan, OptiX, OpenCL and X.Org."""
    platforms = [f"libnvidia-egl-{name}.so.*.*" for name in _GRAPHICS]
    where = (*driver.folders, *FOLDERS)
    found = [path for pattern in platforms for path in libraries(view.driver, where, pattern)]
    xorg = xorg_modules(view, driver)
    return ContainerEdits(
        mounts=(
            *mounts(view, (*found, *xorg, *programs(view, GRAPHICS_PROGRAMS))),
            *configs(view, options),
        ),
        hooks=_graphics_hooks(driver, xorg, options.hooks),
    )


def configs(view: DriverView, options: EditOptions) -> tuple[SpecMount, ...]:
    """Mounts of configuration files, at the paths where libraries look for them.

    On the host they may be below another folder: packages differ.
    """
    found = []
    for path in _CONFIGS:
        name = path.removeprefix("/usr/share/").removeprefix("/etc/")
        places = [
            f"{folder}/{name}"
            for folder in options.config_folders
            or (dirname(path)[: -len(dirname(name)) - 1], *_CONFIG_FOLDERS)
        ]
        places += [f"/{name}"] if name.startswith("vulkan/") else []
        here = next((place for place in places if view.driver.exists(place)), None)
        if here:
            found.append(SpecMount(host_path=_host_path(view, here), container_path=path, options=READ_ONLY))
    return tuple(found)


def xorg_modules(view: DriverView, driver: DriverLibraries) -> tuple[str, ...]:
    """nvidia_drv.so and libglxserver_nvidia.so of this driver, the first of each."""
    bases = [f"{folder}/nvidia/xorg" for folder in driver.folders]
    bases += [f"{base}/{part}" for base in (*driver.folders, *_XORG_BASES) for part in _XORG]
    names = ("nvidia_drv.so", f"libglxserver_nvidia.so.{driver.version}")
    # links are not followed: the X server looks for these very paths
    places = ([f"{folder}/{name}" for folder in bases] for name in names)
    found = ([path for path in paths if view.driver.exists(path)] for paths in places)
    return tuple(paths[0] for paths in found if paths)


def _graphics_hooks(driver: DriverLibraries, xorg: Iterable[str], hooks: HookProgram) -> tuple[SpecHook, ...]:
    links = []
    for path in (*driver.libraries, *xorg):
        folder, name = dirname(path), basename(path)
        if name == f"libnvidia-allocator.so.{driver.version}":
            links.append(f"../libnvidia-allocator.so.1::{folder}/gbm/nvidia-drm_gbm.so")
        elif name in (
            f"libnvidia-vulkan-producer.so.{driver.version}",
            f"libglxserver_nvidia.so.{driver.version}",
        ):
            links.append(f"{name}::{folder}/{name.removesuffix(f'.{driver.version}')}")
    return hooks.make(CREATE_SYMLINKS, *links)
