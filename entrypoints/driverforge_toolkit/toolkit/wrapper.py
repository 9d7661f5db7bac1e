"""The sh scripts that start NVIDIA's programs on the node, where there is no Python.

A wrapper names everything by INSTALL_DIR/toolkit, the link to the release in force: what one of an older
release starts is whole again, and a container that was created then works after that release is gone.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

CONFIG = ".config/nvidia-container-runtime/config.toml"
RUNTIMES = ("nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy")
WRAPPED = ("nvidia-ctk", *RUNTIMES, "nvidia-container-cli", "nvidia-container-runtime-hook")
BARE = "nvidia-cdi-hook"  # run in a container's namespaces, and on hosts that have no /bin/sh
MODULES = "/proc/modules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """What a wrapper does.

    `prepend` are folders in front of a search path. `default_runtime` runs while no driver is loaded.
    """

    program: str
    environment: tuple[tuple[str, str], ...] = ()
    prepend: tuple[tuple[str, str], ...] = ()
    default_runtime: str = ""


def wrapper_of(name: str, folder: str, default_runtime: str) -> Wrapper:
    """The wrapper of one of WRAPPED, whose program is NAME.real in `folder`."""
    config = (("NVIDIA_CTK_CONFIG_FILE_PATH", f"{folder}/{CONFIG}"),)
    return Wrapper(
        program=f"{folder}/{name}.real",
        environment=config if name in (*RUNTIMES, "nvidia-container-runtime-hook") else (),
        prepend=(
            *((("LD_LIBRARY_PATH", folder),) if name == "nvidia-container-cli" else ()),
            ("PATH", folder),
        ),
        default_runtime=default_runtime if name in RUNTIMES else "",
    )


def render_wrapper(wrapper: Wrapper, *, modules: str = MODULES) -> str:
    """The script. `modules` is the kernel's list of loaded modules."""
    # containerd's shim runs `delete` and `kill` in the bundle's folder, which may be gone; a valid one stays:
    # --bundle may be relative
    lines = ["#!/bin/sh", "# written by driverctl toolkit install", '[ -d "$PWD" ] || cd /']
    if wrapper.default_runtime:
        runtime = shlex.quote(wrapper.default_runtime)
        message = shlex.quote(
            f"no nvidia module is loaded; {wrapper.default_runtime} runs this container without GPUs"
        )
        lines += [
            f"if ! grep -q '^nvidia ' {shlex.quote(modules)}; then",
            f"\techo {message} >&2",
            f'\texec {runtime} "$@"',
            "fi",
        ]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in wrapper.environment]
    # an empty entry of a search path is the current folder
    lines += [
        f'export {name}={shlex.quote(folder)}"${{{name}:+:${name}}}"' for name, folder in wrapper.prepend
    ]
    lines.append(f'exec {shlex.quote(wrapper.program)} "$@"')
    return "\n".join(lines) + "\n"
