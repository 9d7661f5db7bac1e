"""Variables of NVIDIA's toolkit container that say what `driverctl runtime` and `driverctl toolkit` shall do; of several the first counts.

Here alone, so that both commands mean the same in one pod.
Imports nothing of ours: the table of the toolkit's options is read on any interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# those of one kind count only for it (DOCKER_CONFIG is the docker client's, too)
PATHS = {
    "socket": ("RUNTIME_SOCKET", "CONTAINERD_SOCKET", "DOCKER_SOCKET", "CRIO_SOCKET"),
    "config": ("RUNTIME_CONFIG", "CONTAINERD_CONFIG", "DOCKER_CONFIG", "CRIO_CONFIG"),
    "drop_in": ("RUNTIME_DROP_IN_CONFIG",),
}
BINARY = ("RUNTIME_EXECUTABLE_PATH",)
DROP_IN_OUTSIDE = ("RUNTIME_DROP_IN_CONFIG_HOST_PATH",)
RESTART_MODES = ("RUNTIME_RESTART_MODE", "CONTAINERD_RESTART_MODE")
RESTART_COMMANDS = ("TOOLKIT_RESTART_COMMAND",)
INSTALL_DIRS = ("TOOLKIT_INSTALL_DIR", "ROOT")
INSTALL_DIR = "/usr/local/nvidia"  # where none of these says another
NAMES = ("NVIDIA_RUNTIME_NAME", "CONTAINERD_RUNTIME_CLASS", "DOCKER_RUNTIME_NAME")
DEFAULTS = ("NVIDIA_RUNTIME_SET_AS_DEFAULT", "CONTAINERD_SET_AS_DEFAULT", "DOCKER_SET_AS_DEFAULT")
CDI_ENABLED = ("CDI_ENABLED", "ENABLE_CDI")
CDI_IN_RUNTIME = ("RUNTIME_ENABLE_CDI",)  # not set: as CDI_ENABLED
TYPES = ("CONTAINERD_RUNTIME_TYPE",)
OVERRIDES = ("RUNTIME_CONFIG_OVERRIDE", "CONTAINERD_RUNTIME_CONFIG_OVERRIDE")
PREFIXES = ("NVIDIA_CONTAINER_RUNTIME_MODES_CDI_ANNOTATION_PREFIXES",)


def first(environ: Mapping[str, str], names: Sequence[str]) -> tuple[str, str]:
    """(variable, value) of the first one that is set and not empty; ('', '') for none."""
    return next(((name, environ[name]) for name in names if environ.get(name)), ("", ""))


def install_dir(environ: Mapping[str, str]) -> str:
    """The node's folder of the toolkit, without a slash at its end."""
    return (first(environ, INSTALL_DIRS)[1] or INSTALL_DIR).rstrip("/")
