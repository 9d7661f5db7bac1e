"""Steps: frozen values that say what they do, do it, and name the check that proves it. Each may be run again after a crash."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_node import log
from driverforge_node.driver import journal, paths
from driverforge_node.driver import tree as load_tree
from driverforge_node.driver.diagnose import explain_insert
from driverforge_node.driver.facts import BuildFiles, Daemon, Source
from driverforge_node.driver.observe import read_journal
from driverforge_node.host.ports import Host

STAGED = f"{paths.STAGE}/root"
STOP_TIMEOUT = 15.0  # seconds for a daemon to end


class Step(Protocol):
    @property
    def proof(self) -> str:
        """The check that shows that the step holds."""

    def describe(self) -> str: ...
    def apply(self, host: Host) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatus:
    text: str
    proof: str = paths.DAEMONS_STATUS

    def describe(self) -> str:
        return f"tell the startup probe: {self.text}"

    def apply(self, host: Host) -> None:
        host.files.make_dirs(paths.VALIDATIONS)
        host.files.write_atomic(paths.DAEMONS_STATUS, f"{self.text}\n".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDaemons:
    daemons: tuple[Daemon, ...]
    proof: str = "the processes are gone from /proc"

    def describe(self) -> str:
        return "stop " + ", ".join(f"{d.name} ({d.pid})" for d in self.daemons)

    def apply(self, host: Host) -> None:
        for daemon in self.daemons:
            if host.processes.alive(daemon.pid, command=daemon.name) and not host.processes.terminate(
                daemon.pid, timeout=STOP_TIMEOUT
            ):
                raise CommandFailed(
                    f"{daemon.name} did not end within {STOP_TIMEOUT:g} s after SIGTERM",
                    details=[f"PID {daemon.pid}"],
                    resolution=f"look at what it does (cat /proc/{daemon.pid}/stack), then start again",
                )
        host.files.remove(paths.DAEMONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetLoad:
    proof: str = f"{paths.DIGEST} is gone"

    def describe(self) -> str:
        return "forget the configuration of the loaded modules"

    def apply(self, host: Host) -> None:
        host.files.remove(paths.DIGEST)
        journal.set_loading(host.files, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveModule:
    name: str
    proof: str = "/proc/modules"

    def describe(self) -> str:
        return f"unload the module {self.name}"

    def apply(self, host: Host) -> None:
        if self.name in host.modules.loaded():
            host.modules.remove(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmountRoot:
    proof: str = "/proc/self/mountinfo"

    def describe(self) -> str:
        return f"unmount {paths.ROOT}"

    def apply(self, host: Host) -> None:
        # looked up anew each time: where /run/nvidia lies on its own peer, one unmount takes two lines of the table
        for _ in range(len(host.mounts.table())):
            if not any(mount.target == paths.ROOT for mount in host.mounts.table()):
                return
            host.mounts.unmount(paths.ROOT, lazy=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    """Compile a module set here, and keep it in the node's cache."""

    release: str
    driver: str
    module_type: str
    jobs: int
    headers: str = ""
    work: str = ""
    network: BuildFiles | None = None  # what nvidia-peermem is compiled against, where somebody wants it
    proof: str = f"a module set under {paths.MODULE_SETS}"

    def describe(self) -> str:
        return f"compile {self.module_type} modules {self.driver} for {self.release}"

    def apply(self, host: Host) -> None:
        # imported here: a node that finds its modules ready never pays for the compiler's half
        from driverforge_core.image import ImageFacts
        from driverforge_core.kernel import KernelRelease
        from driverforge_core.osid import parse_os_release
        from driverforge_node.driver.build import WORK, BuildRequest, build, processors

        request = BuildRequest(
            image=ImageFacts.from_json(host.files.read_text(paths.IMAGE)),
            release=parse_os_release(host.files.read_text("/etc/os-release")),
            kernel=KernelRelease.parse(self.release),
            module_types=(self.module_type,),
            jobs=self.jobs or processors(host),
            headers=self.headers,
            work=self.work or WORK,
            network=self.network,
        )
        build(host, request)


@dataclass(frozen=True, slots=True, kw_only=True)
class FillTree:
    base: str
    release: str
    source: Source
    node_modules: str
    proof: str = f"{paths.STAMP} in the tree names the module set"

    def describe(self) -> str:
        modules = " ".join(name.removesuffix(".ko") for name in self.source.modules.modules)
        return f"fill {load_tree.folder(self.base, self.release)} with {modules} from {self.source.path}"

    def apply(self, host: Host) -> None:
        load_tree.fill(
            host, base=self.base, release=self.release, source=self.source, node_modules=self.node_modules
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteParameters:
    name: str  # of the file in /etc/modprobe.d
    text: str
    proof: str = "the file has this text"

    def describe(self) -> str:
        return f"write {paths.MODPROBE_D}/{self.name}: {self.text.strip() or 'no parameters'}"

    def apply(self, host: Host) -> None:
        host.files.make_dirs(paths.MODPROBE_D)
        host.files.write_atomic(f"{paths.MODPROBE_D}/{self.name}", self.text.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFirmware:
    source: str
    driver: str
    names: tuple[str, ...]
    proof: str = "the files are there, in the same size"

    def describe(self) -> str:
        return f"write firmware to {paths.FIRMWARE}/{self.driver}: {' '.join(self.names)}"

    def apply(self, host: Host) -> None:
        host.files.make_dirs(f"{paths.FIRMWARE}/{self.driver}")
        written = (f"{paths.FIRMWARE}/{self.driver}/{name}" for name in self.names)
        journal.set_firmware(host.files, tuple(sorted({*written, *read_journal(host.files).firmware})))
        for name in self.names:
            host.files.copy(f"{self.source}/{name}", f"{paths.FIRMWARE}/{self.driver}/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFirmware:
    files: tuple[str, ...]
    proof: str = "the files are gone"

    def describe(self) -> str:
        return f"remove the firmware that we wrote: {' '.join(self.files)}"

    def apply(self, host: Host) -> None:
        for path in self.files:
            host.files.remove(path)
        for folder in sorted({path.rpartition("/")[0] for path in self.files}):
            if host.files.is_dir(folder) and not host.files.list_dir(folder):
                host.files.remove_tree(folder)
        journal.set_firmware(host.files, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFirmwarePath:
    proof: str = paths.FIRMWARE_SEARCH

    def describe(self) -> str:
        return f"let the kernel search firmware in {paths.FIRMWARE_SEARCH_VALUE}"

    def apply(self, host: Host) -> None:
        before = host.files.read_text(paths.FIRMWARE_SEARCH).strip(" \n\0")
        if before != paths.FIRMWARE_SEARCH_VALUE:
            journal.set_firmware_path_before(host.files, before)
            # without a newline: kernels before 5.14 take it as part of the path
            host.files.write_in_place(paths.FIRMWARE_SEARCH, paths.FIRMWARE_SEARCH_VALUE.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFirmwarePath:
    value: str
    proof: str = paths.FIRMWARE_SEARCH

    def describe(self) -> str:
        return f"set the kernel's firmware search path back to {self.value or 'nothing'}"

    def apply(self, host: Host) -> None:
        if host.files.read_text(paths.FIRMWARE_SEARCH).strip(" \n\0") == paths.FIRMWARE_SEARCH_VALUE:
            # a NUL is how an empty string is written: write(2) of no bytes does not reach the parameter
            host.files.write_in_place(paths.FIRMWARE_SEARCH, self.value.encode() or b"\0")
        journal.set_firmware_path_before(host.files, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginLoad:
    digest: str
    proof: str = f"{paths.JOURNAL} names the configuration"

    def describe(self) -> str:
        return f"note the configuration to load: {self.digest[:12]}"

    def apply(self, host: Host) -> None:
        host.files.remove(paths.DIGEST)
        journal.set_loading(host.files, self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertHelpers:
    base: str
    proof: str = "none: a kernel without them is fine"

    def describe(self) -> str:
        return f"load in-tree helpers where they are: {' '.join(load_tree.HELPERS)}"

    def apply(self, host: Host) -> None:
        for name in load_tree.HELPERS:
            with suppress(DriverforgeError):
                host.modules.insert(name, base=self.base)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertModule:
    name: str
    base: str
    needed: bool = True  # a driver without it is no driver
    proof: str = "/proc/modules"

    def describe(self) -> str:
        return f"load the module {self.name}" if self.needed else f"load the module {self.name}, if it can be"

    def apply(self, host: Host) -> None:
        try:
            host.modules.insert(self.name, base=self.base)
        except CommandFailed as error:
            raise explain_insert(error, release=host.modules.release()) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyModules:
    """Nothing claims that the driver is loaded before this passed."""

    names: tuple[str, ...]
    version: str
    proof: str = "/sys/module/*/version and /proc/devices"

    def describe(self) -> str:
        return f"verify that {' '.join(self.names)} {self.version} are loaded"

    def apply(self, host: Host) -> None:
        loaded = host.modules.loaded()
        problems = [f"{name} is not in /proc/modules" for name in self.names if name not in loaded]
        versions = {name: loaded[name].version for name in self.names if name in loaded}
        problems += [
            f"{name} is version {found}"
            for name, found in versions.items()
            if found not in ("", self.version)
        ]
        if problems:
            raise CommandFailed(
                f"the modules were inserted, but they are not driver {self.version}",
                details=problems,
                resolution="the module set does not hold what it says: build it again",
            )
        log.info("verified", **versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeDevices:
    devices: tuple[tuple[str, int, int], ...]
    proof: str = "the character devices are in /dev with these numbers"

    def describe(self) -> str:
        return "make " + ", ".join(f"{path} ({major}:{minor})" for path, major, minor in self.devices)

    def apply(self, host: Host) -> None:
        for path, major, minor in self.devices:
            host.files.make_char_device(path, major, minor)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRoot:
    proof: str = f"{paths.ROOT} is this container's root"

    def describe(self) -> str:
        return f"mount this container's root on {paths.ROOT}"

    def apply(self, host: Host) -> None:
        """By way of a private place: in a pod with Bidirectional mounts the container's root is shared, so a copy made in one go is
        its peer, and unmounting the copy takes /proc, /sys and /dev away from ourselves."""
        clear_stage(host)
        host.files.make_dirs(STAGED)
        host.mounts.rbind(paths.STAGE, paths.STAGE)
        host.mounts.set_propagation(paths.STAGE, "private")
        host.files.make_dirs(STAGED)
        host.mounts.rbind("/", STAGED)
        host.mounts.set_propagation(STAGED, "private", recursive=True)
        # as upstream: mounts below /sys stay out of the driver's root, /sys itself is in it
        for mount in reversed(host.mounts.table()):
            if mount.target.startswith((f"{STAGED}/sys/", f"{STAGED}{paths.STAGE}")):
                host.mounts.unmount(mount.target, lazy=True)
        host.files.make_dirs(paths.ROOT)
        host.mounts.rbind(STAGED, paths.ROOT)
        clear_stage(host)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearStage:
    proof: str = "/proc/self/mountinfo"

    def describe(self) -> str:
        return f"unmount what a killed start left at {paths.STAGE}"

    def apply(self, host: Host) -> None:
        clear_stage(host)


def clear_stage(host: Host) -> None:
    """Take away what this run or one that was killed left at the private place."""
    for target in (STAGED, paths.STAGE):
        while any(mount.target == target for mount in host.mounts.table()):
            host.mounts.set_propagation(target, "private", recursive=True)
            host.mounts.unmount(target, lazy=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDigest:
    digest: str
    proof: str = paths.DIGEST

    def describe(self) -> str:
        return f"record the loaded configuration {self.digest[:12]}"

    def apply(self, host: Host) -> None:
        host.files.write_atomic(paths.DIGEST, f"{self.digest}\n".encode())
        journal.set_loading(host.files, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveState:
    """The last step of going away."""

    proof: str = f"{paths.STATE} and {paths.DAEMONS_STATUS} are gone"

    def describe(self) -> str:
        return "remove our status files"

    def apply(self, host: Host) -> None:
        host.files.remove(paths.DAEMONS_STATUS)
        host.files.remove_tree(paths.STATE)
        if not host.files.list_dir(paths.ROOT):
            host.files.remove_tree(paths.ROOT)
