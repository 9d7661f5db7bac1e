"""A container runtime with its configuration files in a folder, for driverctl to change.

The node's root is this machine's. `open_node("containerd", "trixie")` gives a node; `open_node("crio",
"1.31.2")` one with a stand-in for CRI-O, for that cannot be had (`support.fakes.standincrio`). `round_trip`
drives it through apply, a second apply and revert. It looks at the daemon's own view by the daemon's own
program, not by the code that it tests.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

from driverctl import cli
from driverforge_core.errors import Unavailable
from driverforge_host.adapters.real import real_host
from driverforge_host.adapters.sockets import UnixSockets
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find import cri, selection, sockethttp
from driverforge_toolkit.runtime.model import RuntimeKind
from support.fakes import standincrio
from support.machines import containerd, engine
from support.machines.namespaces import own_mounts
from support.process import require, run, running, until

NAMES = ("nvidia", "nvidia-cdi", "nvidia-legacy")
TOOLKIT = "/usr/local/nvidia/toolkit"
PROGRAMS = dict(
    zip(NAMES, (f"{TOOLKIT}/nvidia-container-runtime{end}" for end in ("", ".cdi", ".legacy")), strict=True)
)
DAEMONS = {  # kind and suite -> what the package is
    ("containerd", "bookworm"): "containerd 1.6",
    ("containerd", "trixie"): "containerd 1.7",
    ("containerd", "sid"): "containerd 2.1",
    **{("containerd", version): f"containerd {version}" for version in containerd.COMPILED},
    ("docker", "trixie"): "docker 26",
    ("docker", "sid"): "docker 28",
}
SUITES = {  # a version, as samples name it -> kind and suite
    "1.6": ("containerd", "bookworm"),
    "1.7": ("containerd", "trixie"),
    "2.1": ("containerd", "sid"),
    **{version: ("containerd", version) for version in containerd.COMPILED},
    "26": ("docker", "trixie"),
    "28": ("docker", "sid"),
}
SELDOM = tuple(containerd.COMPILED)  # compiled with --full alone
Snapshot = dict[str, tuple[int, object]]
# kind -> the root file's name, our drop-in, the program
FILES = {
    "containerd": ("config.toml", "conf.d/99-nvidia.toml", "containerd"),
    "crio": ("crio.conf", "crio.conf.d/99-nvidia.toml", "crio"),
    "docker": ("daemon.json", "", "dockerd"),
}


@dataclass
class RuntimeNode:
    """A daemon, its files under `etc`, and a command that restarts it."""

    home: Path
    kind: RuntimeKind
    prefix: Path
    options: list[str] = field(default_factory=list)  # more for each driverctl
    folder: str = "etc"  # of the configuration, in `home`: a distribution is told by its folders
    # started without a configuration file's name: its own mount namespace has `etc` where it looks for one
    default: bool = False
    version: str = ""  # that the stand-in for CRI-O plays

    @property
    def etc(self) -> Path:
        return self.home / self.folder

    @property
    def config(self) -> Path:
        return self.etc / FILES[self.kind][0]

    @property
    def drop_in(self) -> Path:
        return self.etc / FILES[self.kind][1]

    @property
    def socket(self) -> str:
        return str(self.home / "c.sock")

    @property
    def log(self) -> Path:
        return self.home / "log"

    @property
    def pid(self) -> int:
        return int((self.home / "pid").read_text())

    @property
    def program(self) -> Path:
        """The daemon, with its libraries."""
        return self.home / "bin" / FILES[self.kind][2]

    def prepare(self) -> None:
        self.etc.mkdir(parents=True)
        self.program.parent.mkdir()
        if self.kind == "crio":
            self._prepare_stand_in()
            return
        real = self.prefix / ("usr/sbin/dockerd" if self.kind == "docker" else "usr/bin/containerd")
        library = f"LD_LIBRARY_PATH={engine.libraries(self.prefix)} " if self.kind == "docker" else ""
        self.program.write_text(
            f'#!/bin/sh\nPATH={containerd.search_path(self.prefix)} {library}exec {real} "$@"\n'
        )
        self.program.chmod(0o755)

    def _prepare_stand_in(self) -> None:
        """The stand-in under CRI-O's name, and runc and crun that are there and run nothing."""
        paths = ":".join(path for path in sys.path if path)
        for name in ("runc", "crun", "conmon"):
            (self.program.parent / name).write_text("#!/bin/sh\n")
            (self.program.parent / name).chmod(0o755)
        self.program.write_text(
            "#!/bin/bash\n"
            f"export PATH={self.program.parent}:$PATH PYTHONPATH={paths} STAND_IN_VERSION={self.version}\n"
            f'exec -a crio {os.path.realpath(sys.executable)} {standincrio.__file__} "$@"\n'
        )
        self.program.chmod(0o755)

    @property
    def usual(self) -> Path:
        """Where it looks for its configuration by itself."""
        return Path("/etc", self.kind)

    def arguments(self) -> str:
        if self.kind == "docker":
            # dockerd does not take what is in its file as well
            root = "" if b'"data-root"' in self.root() else f"--data-root {self.home}/data "
            places = f"-H unix://{self.socket} {root}--exec-root {self.home}/exec -p {self.home}/docker.pid"
            named = "" if self.default else f"--config-file {self.config} "
            return f"{places} {named}--bridge none --iptables=false --ip6tables=false --ip-forward=false"
        named = "" if self.default else f" --config {self.config}"
        if self.kind == "crio":
            folder = "" if self.default else f" --config-dir {self.drop_in.parent}"
            return f"--listen {self.socket}{named}{folder}"
        return f"--root {self.home}/root --state {self.home}/state --address {self.socket}{named}"

    def root(self) -> bytes:
        """The root file as it is, b'' where there is none."""
        return self.config.read_bytes() if self.config.exists() else b""

    def write_restart(self, *, after: str = "") -> str:
        """The command that stops and starts the daemon; `after` runs in between."""
        script = self.home / "restart"
        net = "--net " if self.kind == "docker" else ""
        entered = f'sh -c \'mount --bind {self.etc} {self.usual} && exec "$0" "$@"\' ' if self.default else ""
        script.write_text(
            f"""#!/bin/sh
old=
if old=$(cat {self.home}/pid 2>/dev/null); then
  kill "$old" 2>/dev/null
  while grep -qs '^State:.[^Z]' "/proc/$old/status"; do sleep 0.02; done
fi
echo restart >>{self.home}/restarts
rm -f {self.home}/docker.pid
{after}
# it writes its PID itself: whoever kills this script must not leave a daemon that nobody can find
setsid sh -c 'echo $$ >{self.home}/pid; exec "$@"' sh \
unshare --mount {net}--propagation private {entered}{self.program} {self.arguments()} \
>>{self.log} 2>&1 </dev/null &
started=$!
until [ "$(cat {self.home}/pid)" != "$old" ] || ! kill -0 $started 2>/dev/null; do sleep 0.02; done
"""
        )
        script.chmod(0o755)
        return str(script)

    def write(self, root: str | bytes | None, extra: Mapping[str, str | bytes] | None = None) -> None:
        """The root file (None: there is none) and files beside it, by their path under `etc`."""
        files = dict(extra or {}) | ({} if root is None else {self.config.name: root})
        for name, data in files.items():
            target = self.etc / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data.encode() if isinstance(data, str) else data)

    def start(self, root: str | bytes | None, extra: Mapping[str, str | bytes] | None = None) -> None:
        """Write the files and start the daemon.

        Without a root file the daemon is told of none, since it would not start with a file that is missing.
        """
        self.write(root, extra)
        self.default = not self.config.exists()
        if self.default:
            self.usual.mkdir(exist_ok=True)
        run(self.write_restart())
        until(lambda: self.answers() is not None, self.kind, timeout=60, log=self.log)
        (self.home / "restarts").unlink()

    def answers(self) -> cri.RuntimeStatus | None:
        try:
            return selection.ASK[self.kind](UnixSockets(), self.socket)
        except Unavailable:
            return None

    def cannot_serve(self) -> bool:
        """Whether a containerd answers, and its CRI plugin is not loaded."""
        try:
            selection.ASK[self.kind](UnixSockets(), self.socket)
        except Unavailable as error:
            return "its CRI plugin is not loaded" in error.brief
        return False

    def handlers(self) -> dict[str, str | None]:
        seen = self.answers()
        assert seen is not None
        return dict(seen.handlers)

    def words(self, action: str, *more: str) -> list[str]:
        program = ["--executable-path", str(self.program)]
        return [
            "runtime",
            action,
            "--socket",
            self.socket,
            *program,
            "--restart-command",
            str(self.home / "restart"),
            *self.options,
            *more,
        ]

    def driverctl(self, action: str, *more: str) -> None:
        assert cli.run(self.words(action, *more), real_host) == 0

    def restarts(self) -> int:
        log = self.home / "restarts"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def snapshot(self) -> Snapshot:
        """Mode and bytes (or link target) of everything under `etc`."""
        found: Snapshot = {}
        for path in sorted(self.etc.rglob("*")):
            mode = path.lstat().st_mode
            content = (
                str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            )
            found[str(path.relative_to(self.etc))] = (stat.S_IMODE(mode), content)
        return found

    def marks(self) -> dict[str, tuple[int, int]]:
        """Inode and time of each file, the journal's entry included: what a write changes."""
        files = [path for path in self.etc.rglob("*") if path.is_file()] + [
            self.journal
        ] * self.journal.exists()
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}

    @property
    def journal(self) -> Path:
        return Path(journal.path_of(self.kind, str(self.config)))

    def effective(self) -> dict[str, Any]:
        """The daemon's own view of the files as they are."""
        if self.kind == "docker":
            data: dict[str, Any] = (
                json.loads(self.config.read_bytes() or b"{}") if self.config.exists() else {}
            )
            return data
        if self.kind == "crio":
            with UnixSockets().connect(self.socket, timeout=10) as connection:
                answer = sockethttp.get(connection, "/config", who="crio")
            return tomllib.loads(sockethttp.body_of(answer, "/config", who="crio").decode())
        config = self.config
        if not config.exists():
            config = self.home / "empty"
            config.write_text("version = 2\n")
        return tomllib.loads(run(self.program, "--config", config, "config", "dump", cwd=Path("/")).stdout)

    def stop(self) -> None:
        if (self.home / "pid").exists():
            run("kill", str(self.pid), check=False)
            until(lambda: not running(self.pid), f"the end of {self.kind}", timeout=30)


def open_node(kind: RuntimeKind, suite: str, *, folder: str = "etc") -> AbstractContextManager[RuntimeNode]:
    """A node with a daemon that is not started.

    The daemon is docker of a Debian suite, containerd as `containerd.programs` has it, or the stand-in for
    CRI-O, whose "suite" is its version. Raises Unavailable where that cannot be had: here and not on
    entering, so that `provided` sees it.
    """
    if os.geteuid() != 0:
        raise Unavailable(f"{kind} needs root")
    if kind == "crio":
        require("bash", "unshare", "setsid")
        return _opened(kind, Path("/"), folder, version=suite)
    require("apt-get", "dpkg-deb", "unshare", "setsid")
    prefix = (
        engine.unpacked(suite, ("docker.io", "containerd"))
        if kind == "docker"
        else containerd.programs(suite)
    )
    return _opened(kind, prefix, folder)


@contextmanager
def _opened(kind: RuntimeKind, prefix: Path, folder: str, *, version: str = "") -> Iterator[RuntimeNode]:
    home = Path(tempfile.mkdtemp(prefix="df-rt-", dir="/tmp"))
    node = RuntimeNode(home=home, kind=kind, prefix=prefix, folder=folder, version=version)
    try:
        with own_mounts():
            _shadow(home / "machine")
            try:
                node.prepare()
                yield node
            finally:
                node.stop()
    finally:
        remove(home)


def _shadow(folder: Path) -> None:
    """Give this thread's mounts what a machine has once, so that nodes can be beside one another.

    That is driverctl's journal, the folders in /etc that a daemon looks into by itself, and in /run
    containerd's sockets for NRI and shims.
    """
    folder.mkdir()
    run("mount", "-t", "tmpfs", "driverforge-node", folder)
    for name in ("upper", "work"):
        (folder / name).mkdir()
    layers = f"lowerdir=/etc,upperdir={folder}/upper,workdir={folder}/work"
    run("mount", "-t", "overlay", "-o", layers, "driverforge-node", "/etc")
    for place in ("/run", "/var/lib/driverforge"):
        Path(place).mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "driverforge-node", place)


def remove(folder: Path) -> None:
    """Remove a folder in which a daemon that was killed a moment ago may still write."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def leaves(table: object, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], object]:
    """Every value that is set.

    Zeros count as not set: daemons print all of a structure's fields.
    """
    if isinstance(table, Mapping):
        return {
            path: value
            for key, inner in table.items()
            for path, value in leaves(inner, (*above, key)).items()
        }
    return {above: table} if table not in ("", 0, False, None, []) else {}


def unrelated(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[tuple[str, ...], tuple[object, object]]:
    """What differs in a daemon's view outside of what was asked for.

    That is the handlers, the list of imports and the features.
    """
    old, new = leaves(before), leaves(after)
    differing = {
        path: (old.get(path), new.get(path)) for path in {**old, **new} if old.get(path) != new.get(path)
    }
    ours = {("runtimes", name) for name in NAMES}
    return {
        path: pair
        for path, pair in differing.items()
        if path != ("imports",) and not any(path[index : index + 2] in ours for index in range(len(path)))
    }


def round_trip(
    node: RuntimeNode,
    root: str | bytes | None,
    extra: Mapping[str, str | bytes] | None = None,
    *,
    programs: Mapping[str, str] = PROGRAMS,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Apply, apply again and revert, and look at the daemon each time.

    After the first apply it is up, has the handlers, and sees nothing else changed. The second apply changes
    nothing. The revert gives every byte back. `programs` are the handlers' (where `node.options` names
    another folder). `meanwhile` is done while they are in force.
    """
    node.start(root, extra)
    before, view, files = node.handlers(), node.effective(), node.snapshot()
    node.driverctl("apply")
    assert node.handlers() == {**before, **programs}
    assert unrelated(view, node.effective()) == {}
    meanwhile()
    marks, restarts = node.marks(), node.restarts()
    node.driverctl("apply")
    assert (node.marks(), node.restarts()) == (marks, restarts)
    node.driverctl("revert")
    assert node.snapshot() == files
    assert node.handlers() == before
    assert not node.journal.exists()
