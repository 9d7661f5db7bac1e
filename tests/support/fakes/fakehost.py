"""A node without a kernel, behind the ports.

Files are real ones in a temporary folder; modules, mounts and processes are in memory. The module graph is
the kernel's: an inserted module takes a reference on each one that it depends on, and a removal in use is
refused in rmmod's words. Module files are real ELF files (`support.samples.tinyko`), so everything that reads
them is tested on the way. A container can be replaced (`new_container`), as a pod's restart does:
/run/nvidia, the kernel and the node stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from driverforge_core.errors import CommandFailed, InUse, Unavailable
from driverforge_core.modinfo import read_modinfo
from driverforge_core.names import normalise
from driverforge_driver.state import paths
from driverforge_host.ports import Holder, Host, LoadedModule, Result
from driverforge_host.ports.mounts import Mount
from support.fakes.fakefiles import FakeFiles, Fuse
from support.fakes.fakeimage import DRIVER, RELEASE, write_image
from support.samples.tinyko import tiny_ko

NODE = "/proc/1/root"
CONTAINER_ID = "c" * 64
BOOT = "0d5a6a86-6c7e-4a3b-9a5e-6f1a6e1b2c3d"
POD = "6f0f3a5e-1c2d-4e5f-8a9b-0c1d2e3f4a5b"


@dataclass
class FakeKernel:
    """Loaded modules, and what goes wrong on purpose.

    `refuses` maps a module to the lines of modprobe and of the kernel.
    """

    files: FakeFiles
    loaded_modules: dict[str, LoadedModule] = field(default_factory=dict)
    stuck: dict[str, str] = field(default_factory=dict)  # module -> rmmod's message
    refuses: dict[str, list[str]] = field(default_factory=dict)
    # modules for which modprobe.d has an `install` line: modprobe ends with 0 and inserts nothing
    ignores: set[str] = field(default_factory=set)
    open_type: bool = True
    running: str = RELEASE
    calls: list[str] = field(default_factory=list)
    references: Callable[[], Sequence[str]] = lambda: ()  # a module name for each open device

    def release(self) -> str:
        return self.running

    def loaded(self) -> Mapping[str, LoadedModule]:
        opened = list(self.references())
        return {
            name: replace(m, refcount=m.refcount + len(m.holders) + opened.count(name))
            for name, m in self.loaded_modules.items()
        }

    def insert(self, name: str, *, base: str = "/", parameters: Sequence[str] = ()) -> None:
        name = normalise(name)
        if name in self.loaded_modules:
            return
        self.files.fuse.burn()
        self.calls.append(" ".join(["insert", name, *parameters]))
        if name in self.ignores:
            return
        if name in self.refuses:
            raise CommandFailed(f"could not insert the module {name}", details=self.refuses[name])
        info = self._find(name, base)
        depends = [normalise(d) for text in info.get("depends", ()) for d in text.split(",") if d]
        for other in depends:
            if other not in self.loaded_modules:
                self.insert(other, base=base)
            found = self.loaded_modules[other]
            self.loaded_modules[other] = replace(found, holders=tuple(sorted((*found.holders, name))))
        version = next(iter(info.get("version", ())), "")
        self.loaded_modules[name] = LoadedModule(
            name=name, refcount=0, holders=(), version=version, state="Live"
        )
        self.show()

    def _find(self, name: str, base: str) -> dict[str, list[str]]:
        """The module's own words, from where depmod indexed it."""
        folder = f"{base.rstrip('/')}{paths.MODULES}/{self.running}"
        index = (
            json.loads(self.files.read_text(f"{folder}/modules.index"))
            if self.files.exists(f"{folder}/modules.index")
            else {}
        )
        if name not in index:
            raise CommandFailed(
                f"could not insert the module {name}",
                details=[f"modprobe: FATAL: Module {name} not found in directory {folder}"],
            )
        return read_modinfo(self.files.read_bytes(index[name]))

    def remove(self, name: str) -> None:
        self.files.fuse.burn()
        self.calls.append(f"remove {name}")
        module = self.loaded()[name]
        if module.holders:
            users = " ".join(module.holders)
            raise InUse(
                f"could not remove the module {name}",
                details=[f"rmmod: ERROR: Module {name} is in use by: {users}"],
            )
        if module.refcount > 0:
            raise InUse(
                f"could not remove the module {name}", details=[f"rmmod: ERROR: Module {name} is in use"]
            )
        if name in self.stuck:
            raise CommandFailed(f"could not remove the module {name}", details=[self.stuck[name]])
        del self.loaded_modules[name]
        for other, found in self.loaded_modules.items():
            self.loaded_modules[other] = replace(found, holders=tuple(h for h in found.holders if h != name))
        self.show()

    def index(self, base: str, release: str) -> None:
        folder = f"{base.rstrip('/')}{paths.MODULES}/{release}"
        top = Path(self.files.real(folder))
        found = {normalise(f.name): f"{folder}/{f.relative_to(top)}" for f in sorted(top.rglob("*.ko"))}
        self.files.write_atomic(f"{folder}/modules.index", json.dumps(found).encode())

    def kernel_log(self) -> tuple[str, ...]:
        return ()

    def _show(self, path: str, text: str | None) -> None:
        target = Path(self.files.real(path))
        if text is None:
            target.unlink(missing_ok=True)
        else:
            target.write_text(text)

    def show(self) -> None:
        """Write /proc/devices and /proc/driver/nvidia as the loaded modules make them.

        The kernel cannot be killed half-way, so this burns no fuse.
        """
        lines = ["Character devices:", "  1 mem"]
        if "nvidia" in self.loaded_modules:
            lines.append("195 nvidia-frontend")
        if "nvidia_uvm" in self.loaded_modules:
            lines.append("511 nvidia-uvm")
        there = "nvidia" in self.loaded_modules
        kind = "UNIX Open Kernel Module for x86_64" if self.open_type else "UNIX x86_64 Kernel Module"
        self._show("/proc/modules", "".join(f"{name} 16384 0 - Live 0x0\n" for name in self.loaded_modules))
        self._show("/proc/devices", "\n".join([*lines, "", "Block devices:", "254 virtblk", ""]))
        self._show(
            "/proc/driver/nvidia/version", f"NVRM version: NVIDIA {kind}  {DRIVER}\n" if there else None
        )
        self._show("/sys/module/nvidia/refcnt", "0\n" if there else None)


@dataclass
class FakeMounts:
    """A mount table that the files follow."""

    places: dict[str, Path]
    files: FakeFiles
    propagation: dict[str, str] = field(default_factory=lambda: {"/": "shared", "/run/nvidia": "shared"})
    calls: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def table(self) -> tuple[Mount, ...]:
        return tuple(
            Mount(
                mount_id=n,
                parent_id=1,
                root="/",
                target=t,
                propagation=self.propagation.get(t, "private"),
                fs_type="tmpfs",
                source="t",
            )
            for n, t in enumerate(("/", "/run/nvidia", *self.made))
        )

    def rbind(self, source: str, target: str) -> None:
        self.files.fuse.burn()
        self.calls.append(f"rbind {source} {target}")
        origin = Path(self.files.real(source))
        self.made.append(target)
        self.places[target] = origin

    def set_propagation(self, target: str, kind: str, *, recursive: bool = False) -> None:
        self.files.fuse.burn()
        self.calls.append(f"{kind} {target}")
        self.propagation[target] = kind

    def unmount(self, target: str, *, lazy: bool = False) -> None:
        self.files.fuse.burn()
        self.calls.append(f"unmount {target}")
        if target not in self.made:
            raise CommandFailed(f"failed: umount {target}", details=["Invalid argument (errno EINVAL)"])
        gone = [t for t in self.made if t == target or t.startswith(f"{target}/")]
        self.made[:] = [t for t in self.made if t not in gone]
        for name in gone:
            self.places.pop(name, None)


@dataclass(frozen=True)
class FakeProcess:
    pid: int
    command: str
    holds: tuple[str, ...] = ()
    container: str = ""
    pod: str = ""


@dataclass
class FakeProcesses:
    running: dict[int, FakeProcess] = field(default_factory=dict)
    user: int = 0
    stubborn: set[int] = field(default_factory=set)  # PIDs that ignore SIGTERM
    terminated: list[int] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)

    def add(self, process: FakeProcess) -> None:
        self.running[process.pid] = process

    def open_devices(self) -> list[str]:
        """The module that each open device refers to."""
        held = [path for process in self.running.values() for path in process.holds]
        return ["nvidia_uvm" if "uvm" in path else "nvidia" for path in held]

    def holders(self, majors: Collection[int]) -> tuple[Holder, ...]:
        return tuple(
            Holder(pid=p.pid, command=p.command, path=path, container=p.container, pod=p.pod)
            for p in self.running.values()
            for path in p.holds
            if (511 if "uvm" in path else 195) in majors  # as FakeKernel.show() has them
        )

    def opened_majors(self, pid: int, majors: Collection[int]) -> tuple[int, ...]:
        held = self.running[pid].holds if pid in self.running else ()
        return tuple(major for path in held if (major := 511 if "uvm" in path else 195) in majors)

    def users(self, part: str) -> tuple[Holder, ...]:
        return tuple(
            Holder(pid=p.pid, command=p.command, path=path, container=p.container, pod=p.pod)
            for p in self.running.values()
            for path in p.holds
            if part in path
        )

    def alive(self, pid: int, *, command: str | None = None) -> bool:
        process = self.running.get(pid)
        return process is not None and (command is None or process.command == command)

    def terminate(self, pid: int, *, timeout: float) -> bool:
        self.terminated.append(pid)
        if pid in self.stubborn:
            return False
        self.running.pop(pid, None)
        return True

    def effective_user(self) -> int:
        return self.user

    def become_subreaper(self) -> None:
        """Nothing reparents here."""

    def reap(self) -> Mapping[int, int]:
        ended, self.ended = self.ended, {}
        return ended


@dataclass
class FakeCommands:
    """Programs by name: a function from the arguments to (status, stdout, stderr)."""

    programs: dict[str, Callable[[Sequence[str]], tuple[int, str, str]]] = field(default_factory=dict)
    daemons: dict[str, Callable[[], int]] = field(default_factory=dict)  # name -> start it, return the PID
    calls: list[tuple[str, ...]] = field(default_factory=list)
    environments: list[Mapping[str, str] | None] = field(default_factory=list)  # one a run

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input_text: str | None = None,
        timeout: float | None = None,
        stream: bool = False,
    ) -> Result:
        self.calls.append(tuple(argv))
        self.environments.append(env)
        if argv[0] not in self.programs:
            raise Unavailable(f"program not found: {argv[0]}")
        status, out, err = self.programs[argv[0]](argv[1:])
        result = Result(argv=tuple(argv), status=status, stdout=out, stderr=err)
        if check and not result.ok:
            raise CommandFailed(f"{argv[0]} failed with status {status}", details=err.splitlines())
        return result

    def find(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.programs or name in self.daemons else None

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: str | None = None
    ) -> int:
        self.calls.append(tuple(argv))
        return self.daemons[argv[0]]()


@dataclass
class FakeClock:
    """Time that passes only by waiting; `stop_at` is when SIGTERM comes.

    `on_wait` runs at each wait, `on_catch` where signals are caught from.
    """

    time: float = 1000.0
    stop_at: float | None = None
    on_wait: Callable[[float], None] = lambda _: None
    on_catch: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return 1_790_000_000 + self.time

    def catch_signals(self) -> None:
        self.on_catch()

    def wait(self, seconds: float) -> str | None:
        self.time += seconds
        self.on_wait(self.time)
        return "SIGTERM" if self.stop_at is not None and self.time >= self.stop_at else None

    def pause(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")  # as time.sleep
        self.time += seconds
        self.on_wait(self.time)

    def ticks(self, *, timeout: float, interval: float) -> Iterator[float]:
        start = self.time
        while True:
            yield self.time - start
            if self.time - start >= timeout or self.wait(interval):
                return


class FakeServices:
    """A node whose units always restart."""

    def __init__(self) -> None:
        self.restarted: list[str] = []
        self.started_in = 0.0  # seconds

    def restart(self, unit: str, *, timeout: float) -> None:
        self.restarted.append(unit)

    def main_pid(self, unit: str) -> int:
        return 4242

    def start_seconds(self, unit: str) -> float:
        return self.started_in

    def last_log_lines(self, unit: str, count: int) -> tuple[str, ...]:
        return ()


@dataclass
class FakeNode:
    """The whole of it; `host` is what our code gets."""

    folder: Path
    kernel: FakeKernel
    mounts: FakeMounts
    processes: FakeProcesses
    commands: FakeCommands
    clock: FakeClock
    services: FakeServices
    places: dict[str, Path]
    files: FakeFiles
    environ: dict[str, str] = field(default_factory=dict)
    containers: int = 0

    @property
    def host(self) -> Host:
        node = FakeFiles(self.places, self.files.fuse, NODE)
        return Host(
            commands=self.commands,
            files=self.files,
            node=node,
            mounts=self.mounts,
            modules=self.kernel,
            processes=self.processes,
            services=self.services,
            clock=self.clock,
            environ=self.environ,
        )

    def new_container(self) -> None:
        """Replace the container by a fresh one of the same image.

        Its root is its own; the node's kernel, /proc, /sys and /run/nvidia stay.
        """
        self.containers += 1
        root = self.folder / f"container{self.containers}"
        root.mkdir()
        self.places["/"] = root
        write_image(self.files)

    def boot(self, boot: str) -> None:
        """Give the kernel's start that id."""
        self.host.node.make_dirs("/proc/sys/kernel/random")
        self.host.node.write_atomic("/proc/sys/kernel/random/boot_id", f"{boot}\n".encode())

    def add_gpu(self, address: str = "0000:3b:00.0", *, driver: str = "") -> None:
        base = f"/sys/bus/pci/devices/{address}"
        self.files.make_dirs(base)
        for name, text in (("vendor", "0x10de\n"), ("device", "0x20b0\n"), ("class", "0x030200\n")):
            self.files.write_atomic(f"{base}/{name}", text.encode())
        if driver:
            self.files.make_dirs(f"/sys/bus/pci/drivers/{driver}")
            self.files.symlink(f"/sys/bus/pci/drivers/{driver}", f"{base}/driver")

    def text(self, path: str) -> str:
        return self.files.read_text(path) if self.files.exists(path) else ""


def fake_node(folder: Path, *, gpu: bool = True) -> FakeNode:
    """A node with a GPU and a container of a precompiled image for its kernel."""
    places = {
        "/proc": folder / "proc",
        "/sys": folder / "sys",
        "/run/nvidia": folder / "run-nvidia",
        NODE: folder / "node",
    }
    for place in places.values():
        place.mkdir(parents=True)
    files = FakeFiles(places, Fuse())
    processes = FakeProcesses()
    kernel = FakeKernel(files=files, references=processes.open_devices)
    node = FakeNode(
        folder=folder,
        kernel=kernel,
        mounts=FakeMounts(places=places, files=files),
        processes=processes,
        commands=FakeCommands(),
        clock=FakeClock(),
        services=FakeServices(),
        places=places,
        files=files,
    )
    for name in ("/proc/driver/nvidia", "/sys/module/nvidia", "/sys/module/firmware_class/parameters"):
        files.make_dirs(name)
    files.write_atomic(paths.FIRMWARE_SEARCH, b"\n")
    (places[NODE] / "dev").mkdir()
    (places[NODE] / "dev/null").touch()
    write_in_tree(node)
    node.boot(BOOT)
    node.new_container()
    kernel.show()
    if gpu:
        node.add_gpu()
    return node


def write_in_tree(node: FakeNode, release: str = RELEASE) -> None:
    """The node's own modules: one that the driver depends on and two that it does not need."""
    files = node.host.node
    base = f"{paths.MODULES}/{release}"
    files.make_dirs(f"{base}/kernel/drivers")
    names = ("i2c-core", "ipmi_msghandler", "e1000")
    for name in names:
        files.write_atomic(f"{base}/kernel/drivers/{name}.ko", tiny_ko([f"name={name}", "depends="]))
    files.write_atomic(
        f"{base}/modules.dep", "".join(f"kernel/drivers/{name}.ko:\n" for name in names).encode()
    )
    files.write_atomic(f"{base}/modules.builtin", b"kernel/lib/crc32.ko\n")
