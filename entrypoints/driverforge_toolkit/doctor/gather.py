"""The evidence of a running node, or of a dump of its files. Nothing is changed.

Of a dump, no process is asked and no program is started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from driverforge_core import validations
from driverforge_core.errors import DriverforgeError, NotPermitted
from driverforge_host.gpu.detect import loaded_version
from driverforge_host.gpu.device_files import FOLDERS, PROC_DEVICES, device_majors
from driverforge_host.ports import Files, Host, Sockets, bytes_of, text_of
from driverforge_toolkit.cdi import specfiles
from driverforge_toolkit.cdi.stale import library_version
from driverforge_toolkit.doctor import gather_runtime, runtime_files
from driverforge_toolkit.doctor.evidence import (
    NodeEvidence,
    RestoreEvidence,
    RestoreState,
    RuntimeEvidence,
    TemplateEvidence,
    ToolkitEvidence,
)
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files
from driverforge_toolkit.runtime.find.instance import boot_id
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.nvidia_handlers import is_nvidia
from driverforge_toolkit.runtime.transaction import restore
from driverforge_toolkit.runtime.transaction.restore_script import SCRIPT
from driverforge_toolkit.toolkit import config_toml
from driverforge_toolkit.toolkit.release_plan import is_own_program
from driverforge_toolkit.toolkit.releases import Layout

DEV_ROOTS = ("/", "/run/nvidia/driver")
TEMPLATES = ("config-v3.toml.tmpl", "config.toml.tmpl")
LOGS = (
    "/var/log/messages",
    "/var/log/syslog",
    "/var/log/daemon.log",
    "/var/log/containerd.log",
    "/var/log/k3s.log",
    "/var/log/k3s-agent.log",
    "/var/log/audit/audit.log",
    "/var/log/dmesg",
    "/var/lib/rancher/k3s/agent/containerd/containerd.log",
    "/var/lib/rancher/rke2/agent/containerd/containerd.log",
)
TAIL = 256 << 10  # bytes of a log that are looked at
LINES = 500  # of a unit's log
HOOK_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk")
SEARCH = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/libexec/crio",
    "/usr/lib/cri-o-runc/sbin",
)


def of_node(host: Host, sockets: Sockets, *, install_dir: str, logs: Sequence[str] = ()) -> NodeEvidence:
    """The evidence of a running node. `logs` are further files to read, as our own process calls them."""
    evidence = _of_files(replace(host, files=host.node), install_dir, live=True)
    runtimes = gather_runtime.of_node(host, sockets, evidence.journal)
    kubelet = gather_runtime.kubelet(host)
    unlinked = tuple(_unlinked(host.node, evidence.numbers))
    texts = {
        unit: host.services.last_log_lines(unit, LINES)
        for unit in dict.fromkeys(runtime.unit for runtime in runtimes)
        if unit
    }
    kernel = {"kernel": host.modules.kernel_log()}
    evidence = replace(
        evidence, live=True, kubelet=kubelet is not None, kubelet_sockets=kubelet or (), unlinked=unlinked
    )
    evidence = replace(evidence, logs={**evidence.logs, **texts, **kernel, **_logs(host.files, logs)})
    return _with_runtimes(host.node, evidence, runtimes)


def of_dump(host: Host, folder: str, *, install_dir: str, logs: Sequence[str] = ()) -> NodeEvidence:
    """The evidence of a dump: the files below `folder`, as far as they are there."""
    tree = host.files.under(folder)
    evidence = _of_files(replace(host, files=tree, node=tree), install_dir, live=False)
    evidence = replace(evidence, logs={**evidence.logs, **_logs(host.files, logs)})
    sockets = gather_runtime.kubelet_by_files(tree)
    evidence = replace(evidence, kubelet=sockets is not None, kubelet_sockets=sockets or ())
    return _with_runtimes(
        tree,
        evidence,
        gather_runtime.of_dump(replace(host, files=tree, node=tree), evidence.journal, evidence.logs),
    )


def _of_files(host: Host, install_dir: str, *, live: bool) -> NodeEvidence:
    """What files alone tell, the same for a node and a dump. `host` has one root for both kinds of files."""
    node = host.node
    entries, problem = _journal(host)
    specs = specfiles.load(node, specfiles.EVERY_FOLDER)
    numbers = dict(_device_numbers(node))
    return NodeEvidence(
        live=live,
        toolkit=_toolkit(node, install_dir),
        templates=tuple(_templates(node)),
        specs=specs,
        gone={file.path: tuple(_missing_paths(node, file, live=live)) for file in specs},
        hook_program=_hook_program(node),
        driver=loaded_version(node),
        libraries=frozenset(_library_versions(node, specs)),
        majors=device_majors(text_of(node, PROC_DEVICES)),
        numbers=numbers,
        journal=entries,
        rewritten={
            entry.config: tuple(
                file.path for file in entry.files if _contents(node, file.path) != file.written
            )
            for entry in entries
        },
        journal_problem=problem,
        restores=tuple(_restores(node)),
        lock_held=_is_locked(node, f"{journal.FOLDER}/lock"),
        ready=node.list_dir(validations.FOLDER),
        logs=_logs(node, LOGS),
    )


def _with_runtimes(node: Files, evidence: NodeEvidence, runtimes: Sequence[RuntimeEvidence]) -> NodeEvidence:
    programs = [
        program
        for runtime in runtimes
        for name, program in runtime_files.handlers(runtime).items()
        if is_nvidia(name, program) and "/" in program
    ]
    missing = tuple(
        program
        for program in dict.fromkeys(programs)
        if not node.exists(program) and _counts_as_missing(node, program, live=evidence.live)
    )
    # a process says its unit, files leave it to be guessed
    units = {runtime.config.rpartition("/")[0]: runtime.unit for runtime in runtimes if runtime.runs}
    templates = (
        replace(each, unit=units.get(each.path.rpartition("/")[0]) or each.unit)
        for each in evidence.templates
    )
    return replace(evidence, runtimes=tuple(runtimes), missing_programs=missing, templates=tuple(templates))


def _counts_as_missing(node: Files, path: str, *, live: bool) -> bool:
    """Whether a file that is not there counts as missing: a dump lacks whole folders.

    One with NVIDIA's hook program at another place has what is to be known of these.
    """
    hooks = path.rpartition("/")[2] in HOOK_PROGRAMS and _hook_program(node) != ""
    return live or hooks or node.is_dir(path.rpartition("/")[0] or "/")


def _hook_program(node: Files) -> str:
    """Where the node has the program of CDI hooks, '' where it has none of the usual places."""
    places = (f"{folder}/{name}" for name in HOOK_PROGRAMS for folder in SEARCH)
    return next((path for path in places if node.exists(path)), "")


def _journal(host: Host) -> tuple[tuple[journal.JournalEntry, ...], tuple[str, ...]]:
    try:
        return journal.entries(host), ()
    # a journal that may not be read may be whole
    except NotPermitted:
        raise
    except DriverforgeError as error:
        return (), (error.brief, *error.details)


def _contents(node: Files, path: str) -> bytes | None:
    try:
        return config_files.contents(node, path)
    except DriverforgeError:
        return None


def _toolkit(node: Files, install_dir: str) -> ToolkitEvidence:
    layout = Layout(install_dir=install_dir)
    evidence = ToolkitEvidence(folder=layout.toolkit, there=node.is_dir(layout.toolkit))
    if not node.exists(layout.config):
        return evidence
    try:
        document = parse(node.read_bytes(layout.config), layout.config)
        stated = config_toml.config_of_table(document, layout.config).nvidia_container_runtime
    except DriverforgeError:
        return replace(evidence, config=layout.config)
    names = tuple(stated.runtimes)
    return replace(
        evidence,
        config=layout.config,
        mode=stated.mode,
        default_kind=stated.modes.cdi.default_kind,
        low_level=names,
        own=tuple(name for name in names if is_own_program(node, install_dir, name)),
        absent=tuple(name for name in names if not _on_node(node, name)),
    )


def _on_node(node: Files, name: str) -> bool:
    """Whether a low-level runtime is on the node.

    In a dump that has none of the folders, it is taken to be.
    """
    if "/" in name:
        return node.exists(name) or not node.is_dir(name.rpartition("/")[0])
    folders = [folder for folder in SEARCH if node.is_dir(folder)]
    return not folders or any(node.exists(f"{folder}/{name}") for folder in folders)


def _templates(node: Files) -> Iterator[TemplateEvidence]:
    """The template of each distribution that counts: that of version 3, where it is there."""
    for place in gather_runtime.BUNDLED:
        folder = place.config.rpartition("/")[0]
        path = next((f"{folder}/{name}" for name in TEMPLATES if node.exists(f"{folder}/{name}")), "")
        if path:
            root = bytes_of(node, place.config)
            yield TemplateEvidence(
                path=path,
                text=node.read_bytes(path).decode("utf-8", "replace"),
                distribution=place.supervisor,
                unit=gather_runtime.unit_by_files(node, place),
                root=None if root is None else root.decode("utf-8", "replace"),
            )


def _missing_paths(node: Files, file: specfiles.SpecFile, *, live: bool) -> Iterator[str]:
    """Host paths of a spec that are not there."""
    every: list[str] = []
    for edits in file.spec.all_edits if file.spec else ():
        every += [device.host_path or device.path for device in edits.device_nodes]
        every += [mount.host_path for mount in edits.mounts]
        every += [hook.path for hook in edits.hooks if hook.name != "startContainer"]
    for path in dict.fromkeys(every):
        if (
            not node.exists(path)
            and _counts_as_missing(node, path, live=live)
            and (live or not path.startswith("/dev/"))
        ):
            yield path


def _library_versions(node: Files, specs: Sequence[specfiles.SpecFile]) -> Iterator[str]:
    paths = [
        mount.host_path
        for file in specs
        for edits in (file.spec.all_edits if file.spec else ())
        for mount in edits.mounts
    ]
    for folder in dict.fromkeys(path.rpartition("/")[0] for path in paths if library_version(path)):
        yield from filter(None, (library_version(f"/{name}") for name in node.list_dir(folder)))


def _device_numbers(node: Files) -> Iterator[tuple[str, tuple[int, int]]]:
    for root in DEV_ROOTS:
        for folder in FOLDERS:
            for name in node.list_dir(f"{root.rstrip('/')}{folder}"):
                path = f"{root.rstrip('/')}{folder}/{name}"
                found = node.device_number(path) if name.startswith(("nvidia", "channel")) else None
                if found:
                    yield path, found


def _unlinked(node: Files, numbers: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for path, (major, minor) in numbers.items():
        link = f"/dev/char/{major}:{minor}"
        if not node.exists(link) and not node.is_link(link):
            yield f"{major}:{minor} for {path}"


def _restores(node: Files) -> Iterator[RestoreEvidence]:
    for name in node.list_dir(restore.FOLDER):
        folder = f"{restore.FOLDER}/{name}"
        state = next((state for state in RestoreState if node.exists(f"{folder}/{state.value}")), None)
        if state:
            watched = state is RestoreState.ARMED and _owner_lives(node, folder)
            yield RestoreEvidence(
                path=folder,
                state=state,
                watched=watched,
                log=tuple(text_of(node, f"{folder}/log").splitlines()),
            )


def _owner_lives(node: Files, folder: str) -> bool:
    """Whether the driverctl that armed a restore still runs.

    The restore's script asks for it with `alive PID START`; START is the process's start time (proc(5), field
    22). After a reboot another process may have both.
    """
    script = text_of(node, f"{folder}/{SCRIPT}")
    if boot_id(node) not in script:
        return False
    words = next((line.split() for line in script.splitlines() if "alive" in line and "uptime" in line), [])
    numbers = [word.rstrip(";&") for word in words if word.rstrip(";&").isdigit()]
    if len(numbers) < 2:
        return False
    fields = text_of(node, f"/proc/{numbers[0]}/stat").rpartition(")")[2].split()
    return len(fields) > 19 and fields[19] == numbers[1]


def _is_locked(node: Files, path: str) -> bool:
    """Whether a process has a lock on the file, by /proc/locks (proc(5)).

    The file alone says nothing: one that was killed leaves it behind.
    """
    found = node.stamp(path)
    lines = [line.split() for line in text_of(node, "/proc/locks").splitlines()]
    return found is not None and any(len(words) > 5 and words[5].endswith(f":{found[1]}") for words in lines)


def _logs(files: Files, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The end of each of these logs that is there."""
    found = {}
    for path in paths:
        size = files.size(path)
        if size and not files.is_dir(path):
            found[path] = tuple(
                files.read_part(path, max(0, size - TAIL), TAIL).decode("utf-8", "replace").splitlines()
            )
    return found
