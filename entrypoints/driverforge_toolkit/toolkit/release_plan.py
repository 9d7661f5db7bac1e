"""From settings to what is to be installed.

config.toml's values, which of its keys the settings decide, and the low-level runtimes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from driverforge_core import log
from driverforge_host.ports import Files, Host
from driverforge_toolkit.runtime.formats.values import KeyPath
from driverforge_toolkit.toolkit import artifacts
from driverforge_toolkit.toolkit.config_toml import (
    LDCONFIG,
    CtkSection,
    HookSection,
    ToolkitConfig,
    default_config,
    host_ldconfig,
)
from driverforge_toolkit.toolkit.install import WantedRelease
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.toolkit.settings import ToolkitSettings
from driverforge_toolkit.toolkit.wrapper import RUNTIMES

OS_RELEASE = "/etc/os-release"
_RUNTIME = "nvidia-container-runtime"
# a field of Settings -> the key of config.toml that is written where it is set
DECIDED_IF_SET: dict[str, KeyPath] = {
    "cli_debug": ("nvidia-container-cli", "debug"),
    "runtime_debug": (_RUNTIME, "debug"),
    "runtime_log_level": (_RUNTIME, "log-level"),
    "runtime_mode": (_RUNTIME, "mode"),
    "cdi_default_kind": (_RUNTIME, "modes", "cdi", "default-kind"),
    "cdi_annotation_prefixes": (_RUNTIME, "modes", "cdi", "annotation-prefixes"),
}
DECIDED: tuple[KeyPath, ...] = (
    ("accept-nvidia-visible-devices-as-volume-mounts",),
    ("accept-nvidia-visible-devices-envvar-when-unprivileged",),
    *(("nvidia-container-cli", key) for key in ("root", "path", "ldconfig")),
    *(("nvidia-container-runtime-hook", key) for key in ("path", "skip-mode-detection")),
    ("nvidia-ctk", "path"),
    (_RUNTIME, "runtimes"),
)


def wanted_release(host: Host, settings: ToolkitSettings, *, discovered: Iterable[str] = ()) -> WantedRelease:
    """What to install.

    `discovered` are low-level runtimes that the container runtime's configuration names, best first.
    """
    layout = layout_of(settings)
    runtimes = low_level_runtimes(
        host.node, layout.install_dir, given=settings.low_level_runtimes, discovered=discovered
    )
    for name in runtimes.refused:
        log.warning(
            "left out a low-level runtime that is one of our own wrappers: it would call itself for ever",
            runtime=name,
        )
    return WantedRelease(
        source=artifacts.source_root(
            host.files, host.node, given=settings.source_root, wanted=settings.package_type
        ),
        layout=layout,
        default_runtime=runtimes.names[0],
        config=config_of(host.node, settings, runtimes.names),
        owned=decided_keys(settings),
    )


def layout_of(settings: ToolkitSettings) -> Layout:
    """Where the settings say that the toolkit lies."""
    return Layout(install_dir=settings.install_dir.rstrip("/"))


def config_of(node: Files, settings: ToolkitSettings, runtimes: tuple[str, ...]) -> ToolkitConfig:
    """config.toml for `settings` on a node."""
    folder = layout_of(settings).toolkit
    base = default_config(os_like(node))
    root = settings.driver_root.rstrip("/")
    cli = replace(
        base.nvidia_container_cli,
        root=settings.driver_root,
        path=f"{folder}/nvidia-container-cli",
        ldconfig=host_ldconfig(node, f"@{root}{LDCONFIG}"),
        debug=settings.cli_debug,
    )
    runtime = base.nvidia_container_runtime
    cdi = replace(
        runtime.modes.cdi,
        default_kind=settings.cdi_default_kind or runtime.modes.cdi.default_kind,
        annotation_prefixes=settings.cdi_annotation_prefixes or runtime.modes.cdi.annotation_prefixes,
    )
    return replace(
        base,
        accept_nvidia_visible_devices_envvar_when_unprivileged=settings.accept_envvar,
        accept_nvidia_visible_devices_as_volume_mounts=settings.accept_mounts,
        features=dict.fromkeys(settings.opt_in_features, True),
        nvidia_container_cli=cli,
        nvidia_container_runtime=replace(
            runtime,
            debug=settings.runtime_debug or runtime.debug,
            log_level=settings.runtime_log_level or runtime.log_level,
            mode=settings.runtime_mode or runtime.mode,
            modes=replace(runtime.modes, cdi=cdi),
            runtimes=runtimes,
        ),
        nvidia_container_runtime_hook=HookSection(
            path=f"{folder}/nvidia-container-runtime-hook", skip_mode_detection=settings.skip_mode_detection
        ),
        nvidia_ctk=CtkSection(path=f"{folder}/nvidia-ctk"),
    )


def decided_keys(settings: ToolkitSettings) -> frozenset[KeyPath]:
    """Keys of config.toml that the settings decide, whatever a person wrote there."""
    said = {path for name, path in DECIDED_IF_SET.items() if getattr(settings, name)}
    return frozenset({*DECIDED, *said, *(("features", name) for name in settings.opt_in_features)})


def os_like(node: Files) -> tuple[str, ...]:
    """ID_LIKE of the node's os-release(5)."""
    if not node.exists(OS_RELEASE):
        return ()
    for line in node.read_text(OS_RELEASE).splitlines():
        name, _, value = line.partition("=")
        if name == "ID_LIKE":
            return tuple(value.strip().strip("\"'").split())
    return ()


LOW_LEVEL = ("runc", "crun")


@dataclass(frozen=True, slots=True, kw_only=True)
class LowLevelRuntimes:
    """`names` in the order in which they are tried, never empty.

    `refused` are our own programs, under whatever name: one of them would call itself for ever.
    """

    names: tuple[str, ...]
    refused: tuple[str, ...] = ()


def low_level_runtimes(
    node: Files, install_dir: str, *, given: Sequence[str], discovered: Iterable[str]
) -> LowLevelRuntimes:
    """Low-level runtimes: the `given` ones, else those that the runtime's configuration names and runc, crun.

    Paths are compared as the node resolves them, and by device and inode: a link to a wrapper, or a copy's
    other name, is a wrapper.
    """
    wanted = list(dict.fromkeys(given or (*filter(None, discovered), *LOW_LEVEL)))
    refused = [name for name in wanted if is_own_program(node, install_dir, name)]
    names = [name for name in wanted if name not in refused]
    return LowLevelRuntimes(names=tuple(names) or LOW_LEVEL, refused=tuple(refused))


def is_own_program(node: Files, install_dir: str, name: str) -> bool:
    """Whether `name` leads to a program of the toolkit.

    A bare name does where a wrapper's PATH would find it among ours.
    """
    if "/" not in name:
        return name in RUNTIMES or node.exists(f"{install_dir}/toolkit/{name}")
    resolved = node.resolve(name)
    roots = (install_dir.rstrip("/"), node.resolve(install_dir).rstrip("/"))
    if any(
        path.startswith((f"{root}/toolkit/", f"{root}/releases/"))
        for root in roots
        for path in (name, resolved)
    ):
        return True
    found = node.identity(name)
    return found is not None and any(
        node.identity(f"{install_dir}/toolkit/{program}") == found for program in RUNTIMES
    )
