"""What a configuration of containerd says: its CRI section, its runtimes, the default one.

The same for the daemon's files and for what it prints of itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_toolkit.runtime.formats.spelling import PROGRAM, settled
from driverforge_toolkit.runtime.formats.values import REMOVED, KeyPath, lookup, table_at

CRI_V1 = ("plugins", "cri")
CRI_V2 = ("plugins", "io.containerd.grpc.v1.cri")
CRI_V3 = ("plugins", "io.containerd.cri.v1.runtime")  # version 3 and later
CRI_NAMES = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
RUNTIMES = ("containerd", "runtimes")  # inside the CRI section, as the next two
DEFAULT = ("containerd", "default_runtime_name")
DEFAULT_TABLE = ("containerd", "default_runtime")
CGROUP = "SystemdCgroup"  # among a runtime's options
ENABLE_CDI = ("enable_cdi",)
CDI_ALWAYS = (2, 4)  # the first containerd that has no such key: it warns of it
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


def cri_sections(config: Mapping[str, object], daemon: tuple[int, ...] = ()) -> tuple[KeyPath, ...]:
    """The paths at which a containerd of the version `daemon` reads a document's CRI section, least first.

    1.x knows the section of version 2 alone. 2.x brings a document to its own version, and for that puts the
    older section below the newer one. So both count in a document of version 2 (AKS has such files), and from
    2.3 on, whose own version is 4, in one of version 3. Measured with 1.7.24, 2.1.9 and 2.4.2.
    """
    if daemon and daemon < (2,):
        return (CRI_V2,)
    version = config.get("version", 2)
    own = newest_version(daemon) if daemon else 3
    return (CRI_V2, CRI_V3) if isinstance(version, int) and version < own else (CRI_V3,)


def section_of(config: Mapping[str, object], daemon: tuple[int, ...] = ()) -> dict[str, object]:
    """What counts of a document's CRI sections; `daemon` is as of `cri_sections`.

    Of two sections, the newer one's keys count, and its keys of `containerd`: `runtimes` as a whole.
    """
    found: dict[str, object] = {}
    for path in cri_sections(config, daemon):
        section = lookup(config, path)
        if isinstance(section, Mapping):
            both = [table.get("containerd") for table in (found, section)]
            inner = {
                key: value for table in both if isinstance(table, Mapping) for key, value in table.items()
            }
            found = {**found, **section, **({"containerd": inner} if inner else {})}
    return found


def newest_version(daemon: tuple[int, ...]) -> int:
    """The version of the configuration that a containerd of the version `daemon` has without a file."""
    return 4 if daemon >= (2, 3) else 3 if daemon >= (2,) else 2


def runtimes_of(
    config: Mapping[str, object],
    name: str = "containerd's configuration",
    *,
    daemon: tuple[int, ...] = (),
) -> dict[str, object]:
    """The runtimes of a document, by name. `daemon` is as of `cri_sections`.

    Raises InputError where something else is in their place; `name` is the document's, for messages.
    """
    runtimes: dict[str, object] = {}
    for section in cri_sections(config, daemon):
        found = table_at(config, (*section, *RUNTIMES), name)
        for runtime in found:
            table_at(found, (runtime, "options"), f"{name}: runtimes")
        if lookup(config, (*section, *RUNTIMES)) is not REMOVED:
            runtimes = found
    return runtimes


def default_of(config: Mapping[str, object], *, daemon: tuple[int, ...] = ()) -> str:
    """The name of the default runtime, '' where the document names none. `daemon` is as of `cri_sections`."""
    named = [lookup(config, (*section, *DEFAULT)) for section in cri_sections(config, daemon)]
    return str(next((name for name in reversed(named) if name is not REMOVED), ""))


def programs_of(runtimes: Mapping[str, object], *, any_case: bool) -> dict[str, str]:
    """The programs of runtimes, by the runtime's name; '' where one names none.

    `any_case` is as of `spelling.counting`.
    """
    options = {
        name: settled(options_of(table), any_case=any_case)
        for name, table in runtimes.items()
        if isinstance(table, Mapping)
    }
    return {name: str(found.get(PROGRAM, "")) for name, found in options.items()}


def printed_by_2(effective: Mapping[str, object]) -> bool:
    """Whether a dump is that of a containerd 2: it has version 3 or later, whatever the files' is."""
    version = effective.get("version")
    return isinstance(version, int) and version >= 3


def overlaid(
    below: Mapping[str, object], above: Mapping[str, object], *, any_case: bool
) -> dict[str, object]:
    """A runtime's table with the keys of both. Where both have one, that of `above` counts, unless it is a
    zero: containerd and NVIDIA's toolkit write down zeros that nobody asked for.
    """
    options = settled(options_of(above), any_case=any_case)
    for key, value in settled(options_of(below), any_case=any_case).items():
        options[key] = options.get(key) or value
    both = {**above, **below, **{key: value for key, value in above.items() if value}}
    return {**both, "options": options} if options else both


def options_of(table: object) -> dict[str, object]:
    """The options of a runtime's table, {} where there are none."""
    options = table.get("options") if isinstance(table, Mapping) else None
    return dict(options) if isinstance(options, Mapping) else {}


def default_table(config: Mapping[str, object]) -> KeyPath:
    """The path of a `default_runtime` table that counts instead of the default's name; () without one."""
    path = (*cri_section(config), *DEFAULT_TABLE)
    kind = lookup(config, (*path, "runtime_type"))
    return path if isinstance(kind, str) and kind else ()
