"""Steps that bring the kernel modules in and out: compile, prepare files, insert, verify, remove."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from driverforge_core import log
from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_driver.driver.steps.diagnose import explain_insert, misfits, not_loaded_warning
from driverforge_driver.state import loadtree, paths, records
from driverforge_driver.state.module_sets import ModuleSource, module_sets, read_image
from driverforge_driver.state.network import NetworkBuildFiles
from driverforge_host.ports import Host, text_of
from driverforge_host.reconcile.outcomes import Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetLoad:
    """Remove what says which configuration is loaded."""

    def describe(self) -> str:
        return "forget the configuration of the loaded modules"

    def apply(self, host: Host) -> None:
        host.files.remove(paths.DIGEST)
        records.set_loading(host.files, "")

    def problem(self, host: Host) -> str:
        kept = text_of(host.files, paths.DIGEST).strip() or records.read_journal(host.files).loading
        return f"the configuration {kept[:12]} is still recorded" if kept else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveModule:
    """rmmod one module. A failure is an error: nothing is loaded over a driver that stayed (D2)."""

    name: str

    def describe(self) -> str:
        return f"unload the module {self.name}"

    def apply(self, host: Host) -> None:
        if self.name in host.modules.loaded():
            host.modules.remove(self.name)

    def problem(self, host: Host) -> str:
        return f"{self.name} is in /proc/modules" if self.name in host.modules.loaded() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    """Compile a module set here, and keep it in the node's cache."""

    release: str
    driver: str
    module_type: str
    jobs: int
    headers: str = ""
    work: str = ""
    # what nvidia-peermem is compiled against; None: the kernel's own symbols
    network: NetworkBuildFiles | None = None

    def describe(self) -> str:
        return f"compile {self.module_type} modules {self.driver} for {self.release}"

    def apply(self, host: Host) -> None:
        # Imported here: a node that finds its modules ready never pays for the compiler's half.
        from driverforge_driver.compile.job import build, request_for

        image = read_image(host.files)
        assert image is not None, "it was planned from the image's description"
        request = request_for(
            host,
            image=image,
            kernel=self.release,
            module_types=(self.module_type,),
            jobs=self.jobs,
            network=self.network,
            headers=self.headers,
            work=self.work,
        )
        build(host, request)

    def problem(self, host: Host) -> str:
        fitting = [
            source.path
            for source in module_sets(host, self.release, read_image(host.files), self.driver).sources
            if source.modules.module_type == self.module_type
        ]
        return (
            ""
            if fitting
            else f"there is no {self.module_type} module set of {self.driver} for {self.release}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FillTree:
    """Fill the load tree from a module set."""

    base: str
    release: str
    source: ModuleSource
    node_modules: str

    def describe(self) -> str:
        modules = " ".join(name.removesuffix(".ko") for name in self.source.modules.modules)
        return f"fill {loadtree.tree_folder(self.base, self.release)} with {modules} from {self.source.path}"

    def apply(self, host: Host) -> None:
        loadtree.fill(
            host, base=self.base, release=self.release, source=self.source, node_modules=self.node_modules
        )

    def problem(self, host: Host) -> str:
        stamp = f"{loadtree.tree_folder(self.base, self.release)}/{paths.STAMP}"
        filled = text_of(host.files, stamp) == loadtree.stamp(self.source, self.node_modules)
        return "" if filled else f"{stamp} does not name the module set"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteParameters:
    """Write a file of module parameters."""

    # of the file in /etc/modprobe.d
    name: str
    text: str

    def describe(self) -> str:
        return f"write {paths.MODPROBE_D}/{self.name}: {self.text.strip() or 'no parameters'}"

    def apply(self, host: Host) -> None:
        host.files.make_dirs(paths.MODPROBE_D)
        host.files.write_atomic(f"{paths.MODPROBE_D}/{self.name}", self.text.encode())

    def problem(self, host: Host) -> str:
        path = f"{paths.MODPROBE_D}/{self.name}"
        return "" if text_of(host.files, path) == self.text else f"{path} has another text"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFirmware:
    """Copy firmware from the image's folder `source` to where the driver looks for it."""

    source: str
    driver: str
    names: tuple[str, ...]

    def describe(self) -> str:
        return f"write firmware to {paths.FIRMWARE}/{self.driver}: {' '.join(self.names)}"

    def apply(self, host: Host) -> None:
        host.files.make_dirs(f"{paths.FIRMWARE}/{self.driver}")
        written = (f"{paths.FIRMWARE}/{self.driver}/{name}" for name in self.names)
        records.set_firmware(
            host.files, tuple(sorted({*written, *records.read_journal(host.files).firmware}))
        )
        for name in self.names:
            host.files.copy(f"{self.source}/{name}", f"{paths.FIRMWARE}/{self.driver}/{name}")

    def problem(self, host: Host) -> str:
        other = [
            name
            for name in self.names
            if host.files.size(f"{paths.FIRMWARE}/{self.driver}/{name}")
            != host.files.size(f"{self.source}/{name}")
        ]
        return f"these differ from {self.source}: {' '.join(other)}" if other else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFirmware:
    """Remove firmware that we wrote, and the folders that it leaves empty."""

    files: tuple[str, ...]

    def describe(self) -> str:
        return f"remove the firmware that we wrote: {' '.join(self.files)}"

    def apply(self, host: Host) -> None:
        for path in self.files:
            host.files.remove(path)
        for folder in sorted({path.rpartition("/")[0] for path in self.files}):
            if host.files.is_dir(folder) and not host.files.list_dir(folder):
                host.files.remove_tree(folder)
        others = (path for path in records.read_journal(host.files).firmware if path not in self.files)
        records.set_firmware(host.files, tuple(others))

    def problem(self, host: Host) -> str:
        left = [path for path in self.files if host.files.exists(path)]
        return f"still there: {' '.join(left)}" if left else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFirmwarePath:
    """Let the kernel find firmware under the driver's root, not in the host's /lib/firmware alone."""

    def describe(self) -> str:
        return f"let the kernel search for firmware in {paths.FIRMWARE_SEARCH_VALUE}"

    def apply(self, host: Host) -> None:
        before = _firmware_search(host)
        if before != paths.FIRMWARE_SEARCH_VALUE:
            records.set_firmware_path_before(host.files, before)
            # No newline: kernels before 5.14 take it as part of the path.
            host.files.write_in_place(paths.FIRMWARE_SEARCH, paths.FIRMWARE_SEARCH_VALUE.encode())

    def problem(self, host: Host) -> str:
        found = _firmware_search(host)
        return "" if found == paths.FIRMWARE_SEARCH_VALUE else f"{paths.FIRMWARE_SEARCH} says {found!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFirmwarePath:
    """Set the kernel's firmware search path back, unless somebody else has set another since."""

    value: str

    def describe(self) -> str:
        return f"set the kernel's firmware search path back to {self.value or 'nothing'}"

    def apply(self, host: Host) -> None:
        if _firmware_search(host) == paths.FIRMWARE_SEARCH_VALUE:
            # A NUL stands for the empty path: write(2) of no bytes does not reach the parameter.
            host.files.write_in_place(paths.FIRMWARE_SEARCH, self.value.encode() or b"\0")
        records.set_firmware_path_before(host.files, None)

    def problem(self, host: Host) -> str:
        found = _firmware_search(host)
        return f"{paths.FIRMWARE_SEARCH} says {found!r}" if found == paths.FIRMWARE_SEARCH_VALUE else ""


def _firmware_search(host: Host) -> str:
    return host.files.read_text(paths.FIRMWARE_SEARCH).strip(" \n\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginLoad:
    """Note the configuration before the first module is inserted: a start after a crash goes on by it."""

    digest: str

    def describe(self) -> str:
        return f"note the configuration to load: {self.digest[:12]}"

    def apply(self, host: Host) -> None:
        host.files.remove(paths.DIGEST)
        records.set_loading(host.files, self.digest)

    def problem(self, host: Host) -> str:
        loading = records.read_journal(host.files).loading
        return "" if loading == self.digest else f"{paths.JOURNAL} names the configuration {loading[:12]!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertHelpers:
    """Load the in-tree modules that the driver uses where they are.

    A kernel may have them built in, or not at all.
    """

    base: str

    def describe(self) -> str:
        return f"load the in-tree helpers that this kernel has: {' '.join(loadtree.HELPERS)}"

    def apply(self, host: Host) -> None:
        for name in loadtree.HELPERS:
            with suppress(DriverforgeError):
                host.modules.insert(name, base=self.base)

    def problem(self, host: Host) -> str:
        # A kernel without them is fine.
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertModule:
    """modprobe one module."""

    name: str
    base: str
    # the entry of the node's cache that it comes from, '' for the image
    entry: str = ""
    # False: a failure is a warning, since the driver is whole without this module
    needed: bool = True

    def describe(self) -> str:
        return f"load the module {self.name}" if self.needed else f"load the module {self.name} if possible"

    def apply(self, host: Host) -> None:
        try:
            self._insert(host)
        except DriverforgeError as error:
            if self.needed:
                raise
            raise Skipped(not_loaded_warning(self.name, error)) from error

    def _insert(self, host: Host) -> None:
        try:
            host.modules.insert(self.name, base=self.base)
        except CommandFailed as error:
            explained = explain_insert(error, release=host.modules.release())
            if self.entry and misfits(error):
                self._drop(host, explained)
            raise explained from error
        # An `install` line of modprobe.d makes modprobe run that command instead, and end with 0.
        if self.name not in host.modules.loaded():
            raise CommandFailed(
                f"modprobe {self.name} succeeded, but the module is not in /proc/modules",
                resolution=f"look for lines about {self.name} in /etc/modprobe.d",
            )

    def _drop(self, host: Host, error: DriverforgeError) -> None:
        """Remove the entry that the kernel does not take: the next start has to make it anew."""
        host.files.remove_tree(self.entry)
        log.warning("removed modules from the node's cache: the kernel refuses them", entry=self.entry)
        error.details = (*error.details, f"removed from the node's cache: {self.entry}")
        error.resolution = f"start again: they are compiled anew; if that fails as well, {error.resolution}"

    def problem(self, host: Host) -> str:
        missing = self.needed and self.name not in host.modules.loaded()
        return f"{self.name} is not in /proc/modules" if missing else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyModules:
    """Look at the loaded versions. Nothing claims that the driver is loaded before this passed (D1)."""

    names: tuple[str, ...]
    version: str

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

    def problem(self, host: Host) -> str:
        # The step is a check itself, with a finding for each module.
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDigest:
    """Record the configuration as loaded, which ends what BeginLoad began."""

    digest: str

    def describe(self) -> str:
        return f"record the loaded configuration {self.digest[:12]}"

    def apply(self, host: Host) -> None:
        host.files.write_atomic(paths.DIGEST, f"{self.digest}\n".encode())
        records.set_loading(host.files, "")

    def problem(self, host: Host) -> str:
        found = text_of(host.files, paths.DIGEST).strip()
        return "" if found == self.digest else f"{paths.DIGEST} says {found[:12]!r}"
