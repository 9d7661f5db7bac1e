"""Compare spec files with the node: what would a container that asks for one of these devices run into?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from driverforge_node.cdi import remedy
from driverforge_node.cdi.roots import read
from driverforge_node.cdi.rules import broken_rules
from driverforge_node.cdi.spec import DeviceNode, Hook
from driverforge_node.cdi.specdirs import SpecFile
from driverforge_node.cdi.stale import driver_version
from driverforge_node.driver.observe import device_majors
from driverforge_node.host.ports import Files, Host

# /proc/devices' names for the beginnings of node names, the longest first
_OWNERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("/dev/nvidia-caps-imex-channels/", ("nvidia-caps-imex-channels",)),
    ("/dev/nvidia-caps/", ("nvidia-caps",)),
    ("/dev/nvidia-nvswitch", ("nvidia-nvswitch",)),
    ("/dev/nvidia-uvm", ("nvidia-uvm",)),
    ("/dev/nvidia-fs", ("nvidia-fs",)),
    ("/dev/nvidia", ("nvidia", "nvidia-frontend")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing about one file. A `note` is worth knowing, but containers start."""

    path: str
    text: str
    advice: str = ""
    note: bool = False

    def line(self) -> str:
        return f"{self.path}: {'note: ' if self.note else ''}{self.text}{f'; {self.advice}' if self.advice else ''}"


def verify(host: Host, specs: Sequence[SpecFile]) -> tuple[Finding, ...]:
    """Everything that is wrong with these files on this node. Host paths are looked up as the node has them."""
    loaded = read(host.files, "/sys/module/nvidia/version").strip()
    majors = device_majors(read(host.files, "/proc/devices"))
    found = [finding for file in specs for finding in _file_findings(host.node, file, majors, loaded)]
    return tuple(dict.fromkeys([*found, *_conflicts(specs)]))


def _file_findings(files: Files, file: SpecFile, majors: Mapping[str, int], loaded: str) -> Iterator[Finding]:
    if file.spec is None:
        for problem in file.problems:
            where, _, what = problem.partition(": ")
            yield Finding(path=where, text=what, advice="correct or remove it: runtimes skip it")
        return
    again = f"write it anew: {remedy.AGAIN}" if remedy.is_ours(file.spec.kind) else remedy.OTHERS
    for problem in broken_rules(file.spec):
        yield Finding(path=file.path, text=problem, advice=again)
    version = driver_version(file.spec)
    if version and loaded and version != loaded:
        yield Finding(path=file.path, text=f"it is for driver {version}, loaded is {loaded}", advice=again)
    for edits in file.spec.all_edits:
        for node in edits.device_nodes:
            yield from _node_findings(files, file.path, node, majors, again)
        for mount in edits.mounts:
            if not files.exists(mount.host_path):
                yield Finding(path=file.path, text=f"{mount.host_path} is not there", advice=again)
        for hook in edits.hooks:
            yield from _hook_findings(files, file.path, hook)


def _node_findings(
    files: Files, path: str, node: DeviceNode, majors: Mapping[str, int], again: str
) -> Iterator[Finding]:
    where = node.host_path or node.path
    now = files.device_number(where)
    stated = (node.major, node.minor)
    if now is None:
        what = "is no character device" if files.exists(where) else "is not there"
        advice = (
            "make it (driverctl devices nodes), or write the spec anew"
            if node.path.startswith("/dev/nvidia")
            else again
        )
        yield Finding(path=path, text=f"{where} {what}", advice=advice)
        return
    if stated not in ((0, 0), now):
        yield Finding(
            path=path, text=f"{where} is {_number(now)}, the spec says {_number(stated)}", advice=again
        )
    owners = next((names for start, names in _OWNERS if node.path.startswith(start)), ())
    registered = [majors[name] for name in owners if name in majors]
    if owners and not registered:
        yield Finding(
            path=path,
            text=f"no loaded module serves {where} (/proc/devices has no {owners[0]})",
            advice="load the driver",
        )
    elif registered and now[0] not in registered:
        text = f"{where} has the major {now[0]}, /proc/devices says {registered[0]}"
        yield Finding(
            path=path,
            text=text,
            advice="correct the node (driverctl devices nodes), then write the spec anew",
        )


def _number(pair: tuple[int, int]) -> str:
    return f"{pair[0]}:{pair[1]}"


def _hook_findings(files: Files, path: str, hook: Hook) -> Iterator[Finding]:
    if hook.name == "startContainer":  # a program in the container
        return
    found = files.metadata(hook.path)
    if found is None:
        text = f"the hook program {hook.path} is not there: no container with this device starts"
        yield Finding(
            path=path,
            text=text,
            advice="install the toolkit, or write the spec anew with --nvidia-cdi-hook-path or --disable-hook",
        )
    elif not found.mode & 0o111 or files.is_dir(hook.path):
        yield Finding(
            path=path,
            text=f"the hook program {hook.path} cannot be executed",
            advice="install the toolkit again",
        )


def _conflicts(specs: Sequence[SpecFile]) -> Iterator[Finding]:
    """CDI's rule: in one folder two files with one device name make it unresolvable; across folders the later folder wins."""
    seen: dict[str, SpecFile] = {}
    for file in specs:
        for name in dict.fromkeys(file.names):
            other = seen.get(name)
            if other and other.folder == file.folder:
                yield Finding(
                    path=file.path,
                    text=f"{name} is in {other.path} too: runtimes resolve neither",
                    advice="remove one of the files",
                )
            elif other:
                yield Finding(path=other.path, text=f"{name} is taken from {file.path}", note=True)
            seen[name] = file
