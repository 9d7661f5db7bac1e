"""Compare spec files with the node: what would a container that asks for one of these devices run into?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from driverforge_host.gpu.detect import loaded_version
from driverforge_host.gpu.device_files import PROC_DEVICES, device_majors, owners_of
from driverforge_host.ports import Files, Host, text_of
from driverforge_toolkit.cdi import remedy
from driverforge_toolkit.cdi.conformance import broken_rules
from driverforge_toolkit.cdi.spec import DeviceNode, SpecHook
from driverforge_toolkit.cdi.specfiles import SpecFile
from driverforge_toolkit.cdi.stale import driver_version


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """One thing that is wrong with one file. A `note` is worth knowing, but containers start."""

    path: str
    text: str
    advice: str = ""
    note: bool = False

    def line(self) -> str:
        note, advice = "note: " if self.note else "", f"; {self.advice}" if self.advice else ""
        return f"{self.path}: {note}{self.text}{advice}"


def verify(host: Host, specs: Sequence[SpecFile]) -> tuple[SpecProblem, ...]:
    """Everything that is wrong with these files on this node. Host paths are those of the node."""
    loaded = loaded_version(host.files)
    majors = device_majors(text_of(host.files, PROC_DEVICES))
    found = [finding for file in specs for finding in _file_findings(host.node, file, majors, loaded)]
    return tuple(dict.fromkeys([*found, *_conflicts(specs)]))


def _file_findings(
    files: Files, file: SpecFile, majors: Mapping[str, int], loaded: str
) -> Iterator[SpecProblem]:
    if file.spec is None:
        for problem in file.problems:
            where, _, what = problem.partition(": ")
            yield SpecProblem(path=where, text=what, advice="correct or remove it: runtimes skip it")
        return
    again = f"write it again: {remedy.AGAIN}" if remedy.is_ours(file.spec.kind) else remedy.OTHERS
    for problem in broken_rules(file.spec):
        yield SpecProblem(path=file.path, text=problem, advice=again)
    version = driver_version(file.spec)
    if version and loaded and version != loaded:
        yield SpecProblem(
            path=file.path, text=f"it is for driver {version}, the loaded one is {loaded}", advice=again
        )
    for edits in file.spec.all_edits:
        for node in edits.device_nodes:
            yield from _node_findings(files, file.path, node, majors, again)
        for mount in edits.mounts:
            if not files.exists(mount.host_path):
                yield SpecProblem(path=file.path, text=f"{mount.host_path} is not there", advice=again)
        for hook in edits.hooks:
            yield from _hook_findings(files, file.path, hook)


def _node_findings(
    files: Files, path: str, node: DeviceNode, majors: Mapping[str, int], again: str
) -> Iterator[SpecProblem]:
    where = node.host_path or node.path
    now = files.device_number(where)
    stated = (node.major, node.minor)
    if now is None:
        what = "is not a character device" if files.exists(where) else "is not there"
        advice = (
            "make it (driverctl devices nodes), or write the spec again"
            if node.path.startswith("/dev/nvidia")
            else again
        )
        yield SpecProblem(path=path, text=f"{where} {what}", advice=advice)
        return
    # without numbers in the spec, the runtime takes those of the host's node
    if stated not in ((0, 0), now):
        yield SpecProblem(
            path=path, text=f"{where} is {_shown(now)}, the spec says {_shown(stated)}", advice=again
        )
    # a file may be there, with the right numbers, of a module that is not loaded any more
    owners = owners_of(node.path)
    registered = [majors[name] for name in owners if name in majors]
    if owners and not registered:
        yield SpecProblem(
            path=path,
            text=f"no loaded module serves {where} (/proc/devices has no {owners[0]})",
            advice="load the driver",
        )
    elif registered and now[0] not in registered:
        text = f"{where} has the major {now[0]}, /proc/devices says {registered[0]}"
        yield SpecProblem(
            path=path,
            text=text,
            advice="correct the node (driverctl devices nodes), then write the spec again",
        )


def _shown(pair: tuple[int, int]) -> str:
    return f"{pair[0]}:{pair[1]}"


def _hook_findings(files: Files, path: str, hook: SpecHook) -> Iterator[SpecProblem]:
    if hook.name == "startContainer":  # a program in the container
        return
    found = files.metadata(hook.path)
    if found is None:
        text = f"the hook program {hook.path} is not there: no container with this device starts"
        yield SpecProblem(
            path=path,
            text=text,
            advice="install the toolkit, or write the spec again with --nvidia-cdi-hook-path or "
            "--disable-hook",
        )
    elif not found.mode & 0o111 or files.is_dir(hook.path):
        yield SpecProblem(
            path=path,
            text=f"the hook program {hook.path} cannot be executed",
            advice="install the toolkit again",
        )


def _conflicts(specs: Sequence[SpecFile]) -> Iterator[SpecProblem]:
    """Device names that two files have.

    In one folder, runtimes resolve neither. Of two folders the later one wins.
    """
    seen: dict[str, SpecFile] = {}
    for file in specs:
        for name in dict.fromkeys(file.names):
            other = seen.get(name)
            if other and other.folder == file.folder:
                yield SpecProblem(
                    path=file.path,
                    text=f"{name} is in {other.path} too: runtimes resolve neither",
                    advice="remove one of the files",
                )
            elif other:
                yield SpecProblem(path=other.path, text=f"{name} is taken from {file.path}", note=True)
            seen[name] = file
