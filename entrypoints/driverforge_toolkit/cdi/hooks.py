"""Hooks of nvidia-cdi-hook, with the arguments that it expects.

The program itself stays NVIDIA's: it runs inside the OCI runtime.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from posixpath import basename, dirname

from driverforge_toolkit.cdi.spec import SpecHook, SpecMount

CREATE_SYMLINKS = "create-symlinks"
CUDA_COMPAT = "enable-cuda-compat"
LDCACHE = "update-ldcache"
NO_DEVICE_NODES = "disable-device-node-modification"
APPLICATION_PROFILE = "update-application-profile"
CHMOD = "chmod"
ALL = "all"
NAMES = (CREATE_SYMLINKS, CUDA_COMPAT, LDCACHE, NO_DEVICE_NODES, APPLICATION_PROFILE, CHMOD)
DEFAULT_PROGRAM = "/usr/bin/nvidia-cdi-hook"

_OFF_BY_DEFAULT = frozenset({CHMOD})  # a workaround for rootless podman with an old crun (crun#1047)
_USELESS_WITHOUT_ARGUMENTS = (CREATE_SYMLINKS, CHMOD)
_LIBRARY = re.compile(r"lib.+\.so(\..+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookProgram:
    """The program that runs hooks, and which hooks it shall run.

    `enabled` beats `disabled`, which may hold 'all'.
    """

    path: str = DEFAULT_PROGRAM
    disabled: frozenset[str] = frozenset()
    enabled: frozenset[str] = frozenset()
    ldconfig: str = ""  # another ldconfig for update-ldcache
    debug: bool = False

    def make(self, name: str, *args: str) -> tuple[SpecHook, ...]:
        """The hook, or none where it is disabled or would do nothing."""
        if not self._wanted(name) or (not args and name in _USELESS_WITHOUT_ARGUMENTS):
            return ()
        program = basename(self.path)
        # nvidia-ctk runs a hook by its subcommand `hook`; nvidia-cdi-hook does nothing else
        first = (program, "hook") if program == "nvidia-ctk" else (program,)
        debug = f"NVIDIA_CTK_DEBUG={str(self.debug).lower()}"
        words = (*first, name, *self._options(name, args))
        return (SpecHook(name="createContainer", path=self.path, args=words, env=(debug,)),)

    def update_ldcache(self, mounts: Iterable[SpecMount]) -> tuple[SpecHook, ...]:
        """The hook for the folders of the libraries among `mounts`; none where there is no library."""
        libraries = [mount.container_path for mount in mounts if is_library(mount.container_path)]
        folders = sorted({dirname(path) for path in libraries})
        return self.make(LDCACHE, *folders) if folders else ()

    def _wanted(self, name: str) -> bool:
        if name in self.enabled:
            return True
        return not self.disabled & {name, ALL} and name not in _OFF_BY_DEFAULT

    def _options(self, name: str, args: tuple[str, ...]) -> tuple[str, ...]:
        if name == CREATE_SYMLINKS:
            return _repeated("--link", args)
        if name == CHMOD:
            return ("--mode", "755", *_repeated("--path", args))
        if name == LDCACHE:
            return (
                *(("--ldconfig-path", self.ldconfig) if self.ldconfig else ()),
                *_repeated("--folder", args),
            )
        return args


def is_library(path: str) -> bool:
    return bool(_LIBRARY.fullmatch(basename(path)))


def _repeated(option: str, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (option, value))
