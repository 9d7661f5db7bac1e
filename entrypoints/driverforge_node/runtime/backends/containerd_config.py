"""What a configuration of containerd says: its CRI section, its runtimes, the default one.

The same for the daemon's files and for what it prints of itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_node.runtime.formats.values import REMOVED, KeyPath, lookup, table_at

CRI_V1 = ("plugins", "cri")
CRI_V2 = ("plugins", "io.containerd.grpc.v1.cri")
CRI_V3 = ("plugins", "io.containerd.cri.v1.runtime")  # version 3 and later
CRI_NAMES = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
RUNTIMES = ("containerd", "runtimes")  # inside the CRI section, as the next two
DEFAULT = ("containerd", "default_runtime_name")
ENABLE_CDI = ("enable_cdi",)
MERGES_KEYS = (2, 1)  # the first containerd that merges imported files key by key
VERSION = ("version",)
# keys that mean the same whatever the version of the file is
VERSIONLESS = {
    "root",
    "state",
    "temp",
    "oom_score",
    "grpc",
    "ttrpc",
    "debug",
    "metrics",
    "cgroup",
    "timeouts",
    "proxy_plugins",
}


def cri_section(config: Mapping[str, object]) -> KeyPath:
    """The path of the CRI section: that of the document's version, else the one that the document has.

    A document of version 3 has both: the older section is left with the settings of the streaming server.
    """
    version = config.get("version")
    if isinstance(version, int):
        return CRI_V3 if version >= 3 else CRI_V2
    return CRI_V2 if lookup(config, CRI_V3) is REMOVED else CRI_V3


def runtimes_of(config: Mapping[str, object], name: str = "containerd's configuration") -> dict[str, object]:
    """The runtimes of a document, by name.

    Raises InputError where something else is in their place; `name` is the document's, for messages.
    """
    runtimes = table_at(config, (*cri_section(config), *RUNTIMES), name)
    for runtime in runtimes:
        table_at(runtimes, (runtime, "options"), f"{name}: runtimes")
    return runtimes


def default_of(config: Mapping[str, object]) -> str:
    """The name of the default runtime, '' where the document names none."""
    return str(_or(lookup(config, (*cri_section(config), *DEFAULT)), ""))


def programs_of(runtimes: Mapping[str, object]) -> dict[str, str]:
    """The programs of runtimes, by the runtime's name; '' where one names none."""
    tables = {name: table for name, table in runtimes.items() if isinstance(table, Mapping)}
    return {name: str(_or(lookup(table, ("options", "BinaryName")), "")) for name, table in tables.items()}


def _or(value: object, default: str) -> object:
    return default if value is REMOVED else value
