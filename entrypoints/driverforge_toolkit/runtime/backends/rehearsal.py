"""A dress rehearsal: the node's own containerd is started with the files that are to come, and ended again.

Its `config dump` accepts what its start does not: a base_runtime_spec that is gone, `mirrors` beside
`config_path`, and from 2.0 on an import that is not there (the dump goes on without it, and without all after
it). Such a daemon does not come back from a restart, whichever files are in force.

The rehearsal has a root, a state and sockets of its own, on a tmpfs that nobody else sees, and namespaces of
its own for mounts, network, processes and IPC; what it could write is mounted read-only there. It loads no
plugin that reaches beyond these: NRI starts programs, a block-device snapshotter has one pool for all, and
the state of remote ones is the running daemon's. It ends when containerd says that it has booted, and with
driverctl, whatever ends that (PR_SET_PDEATHSIG, prctl(2)).

Where that cannot be done, or where its outcome may come from its surroundings, there is no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from driverforge_core.errors import DriverforgeError
from driverforge_host.ports import Host, Result
from driverforge_toolkit.runtime.backends.candidates import Copier, candidate_folder
from driverforge_toolkit.runtime.backends.containerd_config import cri_sections
from driverforge_toolkit.runtime.find.daemon import enter
from driverforge_toolkit.runtime.find.procfs import variable_of
from driverforge_toolkit.runtime.formats.configfile import Contents, data_of, toml_file, values_of
from driverforge_toolkit.runtime.formats.values import REMOVED, lookup
from driverforge_toolkit.runtime.model import RuntimeDaemon

TIMEOUT = 60.0  # seconds; it takes half a second
MEMORY = 1 << 20  # KiB of data (RLIMIT_DATA); it needs a tenth of that
BEGINS = "driverforge: the rehearsal begins"
BOOTED = "containerd successfully booted"
NAMESPACES = ("--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
CRI = "io.containerd.grpc.v1.cri"
RDT = ("plugins", "io.containerd.service.v1.tasks-service", "rdt_config_file")
SNAPSHOTTER = "io.containerd.snapshotter.v1."
# snapshotters whose devices, datasets or images are there once for the whole node
SHARED = ("blockfile", "btrfs", "devmapper", "erofs", "zfs")
# plugins that a rehearsal goes without: they reach beyond its folder, and no CRI plugin needs them
LEFT_OUT = (
    "io.containerd.nri.v1.nri",
    "io.containerd.internal.v1.opt",
    "io.containerd.internal.v1.restart",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.monitor.v1.cgroups",
    "io.containerd.monitor.task.v1.cgroups",
    "io.containerd.monitor.container.v1.restart",
    *(SNAPSHOTTER + name for name in SHARED),
)
# what a start runs into here and not on the node, or may: no verdict
SURROUNDINGS = re.compile(
    rf"read-only file system|snapshotter\W+(?:overlayfs|native|{'|'.join(SHARED)})\b|"
    r"default route|address already in use|cannot assign requested address|"
    r"operation not permitted|cannot allocate memory|out of memory|no space left|"
    r"Failed to run CRI service",
    re.IGNORECASE,
)
# 1.x has the plugin in the message, 2.x as a field
_FAILED = re.compile(r'msg="failed to load plugin[^"]*".*?error="((?:[^"\\]|\\.)*)"')
_OF_CRI = re.compile(rf"(?:failed to load plugin |\bid=){re.escape(CRI)}\b")
_DEPENDENCY = re.compile(r"^unable to load CRI \w+ service plugin dependency: ")
_GONE = re.compile(r"open (/[^:]+): no such file or directory")

# $1: the folder, $2: the daemon's working folder, $3: its PATH, and then the command
SCRIPT = f"""\
here=$1/private
cd "$2" || cd /
PATH=$3 TMPDIR=$here/temporary
export PATH TMPDIR
shift 3
while read -r _ _ _ _ target _; do
	case $target in / | /run | /var | /var/lib | /etc | /opt | /usr | /home | /root | /sys)
		mount -o remount,bind,ro "$target" ;;
	esac
done </proc/self/mountinfo
mount -t tmpfs -o size=64m,mode=0700 tmpfs "$here" || exit
mkdir "$here/temporary" && mkfifo "$here/log" || exit
# addresses of the node, which this network does not have: metrics, streams, gRPC by TCP
for family in ipv4 ipv6; do {{ echo 1 >/proc/sys/net/$family/ip_nonlocal_bind; }} 2>/dev/null; done
ulimit -d {MEMORY}
echo "{BEGINS}"
"$@" --root "$here/root" --state "$here/state" --address "$here/c.sock" --log-level info >"$here/log" 2>&1 &
# this is PID 1 here: with its end, all the others end
sed '/{BOOTED}/q' <"$here/log"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What came of it: a daemon that serves pods, or why it would not, or why there is no verdict."""

    faults: tuple[str, ...] = ()  # in the daemon's own words
    no_verdict: str = ""


def rehearse(
    host: Host, daemon: RuntimeDaemon, files: Contents, disk: Contents, view: Mapping[str, object]
) -> Rehearsal:
    """Start the daemon's program with `files`, where `disk` is what is there now.

    `view` is what its dump makes of these files.
    """
    why = _unfit(daemon, files, view)
    if why:
        return Rehearsal(no_verdict=why)
    try:
        with candidate_folder(host) as folder:
            copier = Copier(host=host, daemon=daemon, files=files, disk=disk, folder=folder)
            places = copier.copied()
            config = _write_wrapper(copier, places, view)
            outcome = verdict(_run(host, daemon, folder, config))
    except DriverforgeError as error:  # unshare is not there, or it took too long
        return Rehearsal(no_verdict=error.brief)
    gone = [path for line in outcome.faults for path in _GONE.findall(line)]
    if any(host.node.exists(path) for path in gone):
        return Rehearsal(no_verdict=f"it did not see {gone[0]}")
    return replace(outcome, faults=tuple(_named(line, places) for line in outcome.faults))


def _unfit(daemon: RuntimeDaemon, files: Contents, view: Mapping[str, object]) -> str:
    """Why there can be no rehearsal with this configuration; '' where there can."""
    if daemon.kind != "containerd":
        return f"{daemon.kind} has no rehearsal"
    root = values_of(files, daemon.config)
    if data_of(files, daemon.config) is not None and not isinstance(root.get("version"), int):
        return "the root file has no version"
    if lookup(view, ("cgroup", "path")) not in ("", REMOVED):
        return "it would enter the daemon's control group"
    if lookup(view, RDT) not in ("", REMOVED):
        return "it would set up the processor's resource control (RDT)"
    required = view.get("required_plugins")
    if isinstance(required, list) and (needed := sorted(set(required) & set(LEFT_OUT))):
        return f"it would need {needed[0]}, which reaches beyond it"
    used = {
        str(lookup(view, path))
        for section in cri_sections(view)
        for path in (
            (*section, "containerd", "snapshotter"),
            (*section[:1], "io.containerd.cri.v1.images", "snapshotter"),
        )
    }
    shared = sorted(used & set(SHARED))
    return f"the snapshotter {shared[0]} has one store for the whole node" if shared else ""


def _write_wrapper(copier: Copier, places: Mapping[str, str], view: Mapping[str, object]) -> str:
    """Write a root file that imports the real one and then what keeps the rehearsal to itself.

    containerd reads imports breadth first, and a later file wins: so that one has to be as deep as any.
    """
    node, daemon, folder = copier.host.node, copier.daemon, copier.folder
    root = copier.file(daemon.config)
    version = root.values["version"]
    imported = copier.imports()
    depth, level, seen = 0, [str(daemon.config)], set[str]()
    while level:
        depth, seen = depth + 1, seen | set(level)
        level = [name for path in level for name in imported.get(path, ()) if name not in seen]
    links = [f"{folder}/link-{number}.toml" for number in range(1, depth)]
    chain = [*links, f"{folder}/alone.toml"]
    whole = [places.get(daemon.config, str(daemon.config)), chain[0]]
    for path, names in zip(
        (f"{folder}/wrapper.toml", *links), (whole, *([name] for name in chain[1:])), strict=True
    ):
        made = toml_file(path, b"").rewritten({"version": version, "imports": names})
        node.write_atomic(path, made.data or b"", mode=0o600)
    alone = toml_file(chain[-1], b"").rewritten({"version": version, **_alone(f"{folder}/private", view)})
    node.write_atomic(chain[-1], alone.data or b"", mode=0o600)
    return f"{folder}/wrapper.toml"


def _alone(private: str, view: Mapping[str, object]) -> dict[str, Any]:
    """Settings that take a daemon with the configuration `view` away from all that is not its own."""
    settings: dict[str, Any] = {"disabled_plugins": list(LEFT_OUT)}
    for name in ("debug", "ttrpc"):
        if lookup(view, (name, "address")) not in ("", REMOVED):
            settings[name] = {"address": f"{private}/{name}.sock"}
    if lookup(view, ("debug", "format")) not in ("", REMOVED):
        settings["debug"] = {**settings.get("debug", {}), "format": "text"}
    if lookup(view, ("temp",)) not in ("", REMOVED):
        settings["temp"] = f"{private}/temporary"
    proxies = view.get("proxy_plugins")
    if isinstance(proxies, Mapping) and proxies:
        settings["proxy_plugins"] = {
            name: {**table, "address": f"{private}/nobody.sock"} for name, table in proxies.items()
        }
    plugins = view.get("plugins")
    stores = {
        name: {"root_path": f"{private}/{name}"}
        for name, table in (plugins.items() if isinstance(plugins, Mapping) else ())
        if name.startswith(SNAPSHOTTER) and isinstance(table, Mapping) and table.get("root_path")
    }
    return {**settings, **({"plugins": stores} if stores else {})}


def _run(host: Host, daemon: RuntimeDaemon, folder: str, config: str) -> Result:
    host.node.make_dirs(f"{folder}/private", mode=0o700)
    host.node.write_atomic(f"{folder}/rehearse.sh", SCRIPT.encode(), mode=0o700)
    search = (
        variable_of(host.node, daemon.pid, "PATH")
        or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    )
    words = ["setpriv", "--pdeathsig", "KILL", *enter(host, daemon)]
    words += ["unshare", *NAMESPACES, "--propagation", "private", "--"]
    words += ["sh", f"{folder}/rehearse.sh", folder, daemon.folder, search]
    return host.commands.run([*words, daemon.binary, "--config", config], check=False, timeout=TIMEOUT)


def verdict(shown: Result) -> Rehearsal:
    """What a rehearsal's output says."""
    before, begun, log = shown.stdout.partition(f"{BEGINS}\n")
    if not begun:
        said = [line for line in (before + shown.stderr).splitlines() if line.strip()]
        return Rehearsal(no_verdict=said[-1] if said else f"it ended with {shown.status}")
    lines = log.splitlines()
    faults = [
        _DEPENDENCY.sub("", _unescaped(found[1]))
        for line in lines
        if _OF_CRI.search(line) and (found := _FAILED.search(line))
    ]
    if not faults and BOOTED not in log:
        faults = [line for line in lines if line.startswith("containerd: ") or "level=fatal" in line][-3:]
        if not faults:
            return Rehearsal(no_verdict=lines[-1] if lines else "it ended without a word")
    if not faults and not any("loading plugin" in line and CRI in line for line in lines):
        faults = ["it starts without its CRI plugin"]
    odd = next((line for line in faults if SURROUNDINGS.search(line)), "")
    return Rehearsal(no_verdict=odd) if odd else Rehearsal(faults=tuple(faults))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _named(line: str, places: Mapping[str, str]) -> str:
    """A line with the files' own names in place of those of the copies."""
    for path, place in places.items():
        line = line.replace(place, path)
    return line
