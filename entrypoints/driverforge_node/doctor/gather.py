"""Facts of a running node, or of a dump of its files. Changes nothing; of a dump nobody is asked and no program is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from driverforge_core.errors import DriverforgeError, NotPermitted
from driverforge_node.cdi import specdirs
from driverforge_node.cdi.roots import read
from driverforge_node.doctor import gather_runtime, view
from driverforge_node.doctor.facts import Facts, Restore, RuntimeFacts, ToolkitFacts
from driverforge_node.driver.observe import device_majors
from driverforge_node.host.ports import Files, Host
from driverforge_node.runtime import journal, restore, sources
from driverforge_node.runtime.document import parse
from driverforge_node.runtime.nvidia import is_nvidia
from driverforge_node.runtime.ports import Sockets
from driverforge_node.toolkit.config import read as read_config
from driverforge_node.toolkit.layout import Layout
from driverforge_node.toolkit.lowlevel import is_ours

VALIDATIONS = "/run/nvidia/validations"
DEV_ROOTS = ("/", "/run/nvidia/driver")
DEVICES = ("/dev", "/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels")
TEMPLATES = ("config.toml.tmpl", "config-v3.toml.tmpl")
LOGS = (
    "/var/log/messages", "/var/log/syslog", "/var/log/daemon.log", "/var/log/containerd.log", "/var/log/audit/audit.log", "/var/log/dmesg",
    "/var/lib/rancher/k3s/agent/containerd/containerd.log", "/var/lib/rancher/rke2/agent/containerd/containerd.log",
)  # fmt: skip
TAIL = 256 << 10  # bytes of a log that are looked at
LINES = 500  # of a unit's log
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


def of_node(host: Host, sockets: Sockets, *, install_dir: str, logs: Sequence[str] = ()) -> Facts:
    """A running node. `logs` are further files to read, as our own process calls them."""
    facts = _of_files(replace(host, files=host.node), install_dir, live=True)
    runtimes = gather_runtime.of_node(host, sockets, facts.journal)
    kubelet = gather_runtime.kubelet(host)
    unlinked = tuple(_unlinked(host.node, facts.numbers))
    texts = {
        unit: host.services.last_log_lines(unit, LINES)
        for unit in dict.fromkeys(runtime.unit for runtime in runtimes)
        if unit
    }
    kernel = {"kernel": host.modules.kernel_log()}
    facts = replace(
        facts, live=True, kubelet=kubelet is not None, kubelet_sockets=kubelet or (), unlinked=unlinked
    )
    facts = replace(facts, logs={**facts.logs, **texts, **kernel, **_logs(host.files, logs)})
    return _with_runtimes(host.node, facts, runtimes)


def of_dump(host: Host, folder: str, *, install_dir: str, logs: Sequence[str] = ()) -> Facts:
    """The files below `folder`, as far as they are there."""
    tree = host.files.under(folder)
    facts = _of_files(replace(host, files=tree, node=tree), install_dir, live=False)
    facts = replace(facts, logs={**facts.logs, **_logs(host.files, logs)})
    sockets = gather_runtime.kubelet_by_files(tree)
    facts = replace(facts, kubelet=sockets is not None, kubelet_sockets=sockets or ())
    return _with_runtimes(
        tree, facts, gather_runtime.of_dump(replace(host, files=tree, node=tree), facts.journal, facts.logs)
    )


def _of_files(host: Host, install_dir: str, *, live: bool) -> Facts:
    """What files alone tell: the same for a node and a dump. `host` has one root for both kinds of files."""
    node = host.node
    entries, problem = _journal(host)
    specs = specdirs.load(node, (*specdirs.FOLDERS, "/run/cdi"))  # a dump may lack the link /var/run
    numbers = dict(_numbers(node))
    return Facts(
        live=live,
        toolkit=_toolkit(node, install_dir),
        templates=dict(_templates(node)),
        specs=specs,
        gone={file.path: tuple(_gone(node, file, live=live)) for file in specs},
        driver=read(node, "/sys/module/nvidia/version").strip(),
        majors=device_majors(read(node, "/proc/devices")),
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
        lock_held=_held(node, f"{journal.FOLDER}/lock"),
        ready=node.list_dir(VALIDATIONS),
        logs=_logs(node, LOGS),
    )


def _with_runtimes(node: Files, facts: Facts, runtimes: Sequence[RuntimeFacts]) -> Facts:
    programs = [
        program
        for runtime in runtimes
        for name, program in view.handlers(runtime).items()
        if is_nvidia(name, program) and "/" in program
    ]
    missing = tuple(
        program
        for program in dict.fromkeys(programs)
        if not node.exists(program) and _judged(node, program, live=facts.live)
    )
    return replace(facts, runtimes=tuple(runtimes), missing_programs=missing)


def _judged(node: Files, path: str, *, live: bool) -> bool:
    """Whether a file that is not there is missing: a dump lacks whole folders."""
    return live or node.is_dir(path.rpartition("/")[0] or "/")


def _journal(host: Host) -> tuple[tuple[journal.Entry, ...], tuple[str, ...]]:
    try:
        return journal.entries(host), ()
    except NotPermitted:
        raise  # it may be whole
    except DriverforgeError as error:
        return (), (error.brief, *error.details)


def _contents(node: Files, path: str) -> bytes | None:
    try:
        return sources.contents(node, path)
    except DriverforgeError:
        return None


def _toolkit(node: Files, install_dir: str) -> ToolkitFacts:
    layout = Layout(install_dir=install_dir)
    facts = ToolkitFacts(folder=layout.toolkit, there=node.is_dir(layout.toolkit))
    if not node.exists(layout.config):
        return facts
    try:
        config = read_config(
            parse(node.read_bytes(layout.config), layout.config), layout.config
        ).nvidia_container_runtime
    except DriverforgeError:
        return replace(facts, config=layout.config)
    names = tuple(config.runtimes)
    return replace(
        facts, config=layout.config, mode=config.mode, default_kind=config.modes.cdi.default_kind, low_level=names,
        own=tuple(name for name in names if is_ours(node, install_dir, name)),
        absent=tuple(name for name in names if not _found(node, name)),
    )  # fmt: skip


def _found(node: Files, name: str) -> bool:
    """Whether a low-level runtime is on the node; a dump without any of the folders has it."""
    if "/" in name:
        return node.exists(name) or not node.is_dir(name.rpartition("/")[0])
    folders = [folder for folder in SEARCH if node.is_dir(folder)]
    return not folders or any(node.exists(f"{folder}/{name}") for folder in folders)


def _templates(node: Files) -> Iterator[tuple[str, str]]:
    for distribution in ("k3s", "rke2"):
        for name in TEMPLATES:
            path = f"/var/lib/rancher/{distribution}/agent/etc/containerd/{name}"
            if node.exists(path):
                yield path, node.read_text(path)


def _gone(node: Files, file: specdirs.SpecFile, *, live: bool) -> Iterator[str]:
    """Host paths of a spec that are not there."""
    every: list[str] = []
    for edits in file.spec.all_edits if file.spec else ():
        every += [device.host_path or device.path for device in edits.device_nodes]
        every += [mount.host_path for mount in edits.mounts]
        every += [hook.path for hook in edits.hooks if hook.name != "startContainer"]
    for path in dict.fromkeys(every):
        if (
            not node.exists(path)
            and _judged(node, path, live=live)
            and (live or not path.startswith("/dev/"))
        ):
            yield path


def _numbers(node: Files) -> Iterator[tuple[str, tuple[int, int]]]:
    for root in DEV_ROOTS:
        for folder in DEVICES:
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


def _restores(node: Files) -> Iterator[Restore]:
    for name in node.list_dir(restore.FOLDER):
        folder = f"{restore.FOLDER}/{name}"
        state = next(
            (state for state in ("armed", "firing", "restored") if node.exists(f"{folder}/{state}")), ""
        )
        if state:
            watched = state == "armed" and _owner_lives(node, folder)
            yield Restore(
                path=folder, state=state, watched=watched, log=tuple(read(node, f"{folder}/log").splitlines())
            )


def _owner_lives(node: Files, folder: str) -> bool:
    """Whether the driverctl that armed it runs: its script asks for `alive PID START`."""
    words = next(
        (
            line.split()
            for line in read(node, f"{folder}/{restore.SCRIPT}").splitlines()
            if "alive" in line and "uptime" in line
        ),
        [],
    )
    numbers = [word.rstrip(";&") for word in words if word.rstrip(";&").isdigit()]
    if len(numbers) < 2:
        return False
    fields = read(node, f"/proc/{numbers[0]}/stat").rpartition(")")[2].split()
    return len(fields) > 19 and fields[19] == numbers[1]


def _held(node: Files, path: str) -> bool:
    """Whether somebody has a lock on the file: one that was killed leaves it behind (proc(5), /proc/locks)."""
    found = node.stamp(path)
    lines = [line.split() for line in read(node, "/proc/locks").splitlines()]
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
