"""From settings to what is to be installed: config.toml's values, and which of them the settings decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from driverforge_node import log
from driverforge_node.host.ports import Files, Host
from driverforge_node.runtime.document import Path
from driverforge_node.toolkit import source
from driverforge_node.toolkit.config import LDCONFIG, Ctk, Hook, ToolkitConfig, default_config, host_ldconfig
from driverforge_node.toolkit.install import Wanted
from driverforge_node.toolkit.layout import Layout
from driverforge_node.toolkit.lowlevel import low_level
from driverforge_node.toolkit.settings import Settings

OS_RELEASE = "/etc/os-release"
_RUNTIME = "nvidia-container-runtime"
# a field of Settings -> the key of config.toml that is written where it is set
OPTIONAL: dict[str, Path] = {
    "cli_debug": ("nvidia-container-cli", "debug"),
    "runtime_debug": (_RUNTIME, "debug"),
    "runtime_log_level": (_RUNTIME, "log-level"),
    "runtime_mode": (_RUNTIME, "mode"),
    "cdi_default_kind": (_RUNTIME, "modes", "cdi", "default-kind"),
    "cdi_annotation_prefixes": (_RUNTIME, "modes", "cdi", "annotation-prefixes"),
}
ALWAYS: tuple[Path, ...] = (
    ("accept-nvidia-visible-devices-as-volume-mounts",),
    ("accept-nvidia-visible-devices-envvar-when-unprivileged",),
    *(("nvidia-container-cli", key) for key in ("root", "path", "ldconfig")),
    *(("nvidia-container-runtime-hook", key) for key in ("path", "skip-mode-detection")),
    ("nvidia-ctk", "path"),
    (_RUNTIME, "runtimes"),
)


def wanted(host: Host, settings: Settings, *, discovered: Iterable[str] = ()) -> Wanted:
    """What to install. `discovered` are low-level runtimes that the container runtime's configuration names, best first."""
    layout = layout_of(settings)
    runtimes = low_level(
        host.node, layout.install_dir, given=settings.low_level_runtimes, discovered=discovered
    )
    for name in runtimes.refused:
        log.warning(
            "left out a low-level runtime that is one of our own wrappers: it would call itself for ever",
            runtime=name,
        )
    return Wanted(
        source=source.source_root(
            host.files, host.node, given=settings.source_root, wanted=settings.package_type
        ),
        layout=layout,
        default_runtime=runtimes.names[0],
        config=config_of(host.node, settings, runtimes.names),
        owned=owned(settings),
    )


def layout_of(settings: Settings) -> Layout:
    return Layout(install_dir=settings.install_dir.rstrip("/"))


def config_of(node: Files, settings: Settings, runtimes: tuple[str, ...]) -> ToolkitConfig:
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
        nvidia_container_runtime_hook=Hook(
            path=f"{folder}/nvidia-container-runtime-hook", skip_mode_detection=settings.skip_mode_detection
        ),
        nvidia_ctk=Ctk(path=f"{folder}/nvidia-ctk"),
    )


def owned(settings: Settings) -> frozenset[Path]:
    """Keys of config.toml that the settings decide, whatever a person wrote there."""
    said = {path for name, path in OPTIONAL.items() if getattr(settings, name)}
    return frozenset({*ALWAYS, *said, *(("features", name) for name in settings.opt_in_features)})


def os_like(node: Files) -> tuple[str, ...]:
    """ID_LIKE of the node's os-release(5)."""
    if not node.exists(OS_RELEASE):
        return ()
    for line in node.read_text(OS_RELEASE).splitlines():
        name, _, value = line.partition("=")
        if name == "ID_LIKE":
            return tuple(value.strip().strip("\"'").split())
    return ()
