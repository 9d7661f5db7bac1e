"""What the daemon's own program makes of a set of files, before they are in force.

containerd and CRI-O read copies, which are under /run/driverforge of the node for as long as that takes. A
set that is on disk already is read where it is. docker has no such command: its document is what it is, and
`dockerd --validate` judges it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from driverforge_core.errors import InputError
from driverforge_host.ports import Host, Result
from driverforge_toolkit.runtime.backends import config_files, crio, imports
from driverforge_toolkit.runtime.find.daemon import enter
from driverforge_toolkit.runtime.find.procfs import option_value, option_values, options_of
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents, data_of, toml_file, values_of
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import Change
from driverforge_toolkit.runtime.model import RuntimeDaemon

FOLDER = "/run/driverforge"
PREFIX = "candidate-"
TIMEOUT = 60.0


def effective_configuration(
    host: Host, daemon: RuntimeDaemon, files: Contents, disk: Contents
) -> Mapping[str, object]:
    """The daemon's view of `files`; `disk` is what is there now.

    Raises InputError, with the daemon's own message, where it does not accept them; Unavailable where its
    program cannot be run.
    """
    if daemon.kind == "containerd":
        return _containerd(host, daemon, files, disk)
    if daemon.kind == "crio":
        return _crio(host, daemon, files)
    return _docker(host, daemon, files)


def _containerd(host: Host, daemon: RuntimeDaemon, files: Contents, disk: Contents) -> Mapping[str, object]:
    if data_of(files, daemon.config) is not None and not config_files.changed_paths(files, disk):
        shown = _run(host, daemon, "--config", daemon.config, "config", "dump")
    else:
        with candidate_folder(host) as folder:
            copier = _Copier(
                host=host,
                daemon=daemon,
                files=files,
                disk=disk,
                folder=folder,
            )
            copy = copier.copied().get(daemon.config, daemon.config)
            shown = _run(host, daemon, "--config", copy, "config", "dump")
    seen = parse(_accepted(shown, daemon).encode(), "containerd's effective configuration")
    # the dump names the copies
    seen["imports"] = imports.declared_imports(values_of(files, daemon.config), daemon.config)
    return seen


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copier:
    """Writes copies of changed files, and of those that import them, into one folder."""

    host: Host
    daemon: RuntimeDaemon
    files: Contents
    disk: Contents
    folder: str

    def copied(self) -> dict[str, str]:
        """Write the copies, and return where each is, by the path that it stands for.

        The imports of a copy name copies, so that a file that imports a copied one has to be copied too.
        """
        imported = self._imports()
        places: dict[str, str] = {}
        todo = [path for path, names in imported.items() if self._differs(path, names)]
        while todo:
            path = todo.pop()
            if path not in places:
                places[path] = f"{self.folder}/{len(places)}-{path.rpartition('/')[2]}"
                todo += [importer for importer, names in imported.items() if path in names]
        for path, place in places.items():
            file = self._file(path)
            names = [places.get(name, name) for name in imported[path] if name != path]
            if names or imports.declared_imports(file.values, path):
                file = file.edited([Change(path=imports.IMPORTS, value=names)])
            self.host.node.write_atomic(place, file.data or b"", mode=0o600)
        return places

    def _file(self, path: str) -> ConfigFile:
        """The file to copy; where it is not there, what the daemon makes of none."""
        file = self.files.get(path)
        if file is not None and file.data is not None:
            return file
        version = b"version = %d\n" % (3 if self.daemon.version >= (2,) else 2)
        return toml_file(path, version)

    def _imports(self) -> dict[str, list[str]]:
        """What each file imports that the daemon reads.

        The root file is one of them, even where it is not there.
        """
        found: dict[str, list[str]] = {}
        todo: list[str] = [self.daemon.config]
        while todo:
            path = todo.pop()
            if path not in found and (path == self.daemon.config or data_of(self.files, path) is not None):
                found[path] = imports.imported_files(self.host.node, self.daemon, path, self.files)
                todo += found[path]
        return found

    def _differs(self, path: str, names: list[str]) -> bool:
        """Whether the daemon would read something else at `path`.

        Also where only an import went: a file that goes away is on disk still, and the original would find it
        there.
        """
        data = data_of(self.files, path)
        if data is None or data != data_of(self.disk, path):
            return True
        return bool(set(imports.imported_files(self.host.node, self.daemon, path, self.disk)) - set(names))


def _crio(host: Host, daemon: RuntimeDaemon, files: Contents) -> dict[str, object]:
    """Its built-in configuration, with what `crio config` prints: defaults are comments there, since 1.21.

    That is so in the releases that print them at all (cri-o/cri-o#4506, #5007).
    """
    above = daemon.drop_in.rpartition("/")[0]
    # these win over the files, and only these change runtimes (internal/criocli)
    own = options_of(host.node, daemon.pid)
    options = [
        f"{name}={value}"
        for name in ("--default-runtime", "--runtimes")
        for value in option_values(own, (name,))
    ]
    with candidate_folder(host) as folder:
        root = f"{folder}/{daemon.config.rpartition('/')[2]}"
        host.node.make_dirs(f"{folder}/conf.d", mode=0o700)
        host.node.write_atomic(root, data_of(files, daemon.config) or b"", mode=0o600)
        for path, file in files.items():
            if file.data is not None and path != daemon.config:
                copy = f"{folder}/conf.d{path.removeprefix(above)}"
                host.node.make_dirs(copy.rpartition("/")[0], mode=0o700)
                host.node.write_atomic(copy, file.data, mode=0o600)
        words = ("--config", root, "--config-dir", f"{folder}/conf.d", *options, "config")
        shown = _run(host, daemon, *words)
        built_in = _run(host, daemon, *words, "--default")
    seen = parse(_accepted(shown, daemon).encode(), "CRI-O's effective configuration")
    return crio.layered(_printed(built_in), seen)


def _printed(shown: Result) -> dict[str, object]:
    """The document that a program printed; {} where it printed none."""
    try:
        return parse(shown.stdout.encode(), "CRI-O's built-in configuration") if shown.ok else {}
    except InputError:
        return {}


def _docker(host: Host, daemon: RuntimeDaemon, files: Contents) -> Mapping[str, object]:
    data, document = data_of(files, daemon.config), values_of(files, daemon.config)
    if data is None:
        return {}
    # its other options count: one that is in the file as well makes it refuse to start
    options = [word for word in options_of(host.node, daemon.pid) if word != "--validate"]
    named = option_value(options, ("--config-file",))
    options = [word for word in options if word not in ("--config-file", named, f"--config-file={named}")]
    with candidate_folder(host) as folder:
        host.node.write_atomic(f"{folder}/daemon.json", data, mode=0o600)
        shown = _run(host, daemon, *options, "--validate", "--config-file", f"{folder}/daemon.json")
    if "unknown flag: --validate" not in shown.stderr:  # docker before 23
        _accepted(shown, daemon)
    return document


@contextmanager
def candidate_folder(host: Host) -> Iterator[str]:
    """A folder of the node for copies. It is gone afterwards."""
    folder = f"{FOLDER}/{PREFIX}{own_pid(host)}-{secrets.token_hex(4)}"
    host.node.make_dirs(folder, mode=0o700)
    try:
        yield folder
    finally:
        host.node.remove_tree(folder)


def own_pid(host: Host) -> int:
    return int(host.node.read_text("/proc/self/stat").split()[0])


def remove_candidates(host: Host) -> None:
    """Remove the copies that a killed check left."""
    for name in host.node.list_dir(FOLDER):
        pid = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and not host.node.exists(f"/proc/{pid}"):
            host.node.remove_tree(f"{FOLDER}/{name}")


def _run(host: Host, daemon: RuntimeDaemon, *words: str) -> Result:
    entered = enter(host, daemon)
    # where older ones start relative imports; nsenter goes to /, where services have theirs
    here = daemon.folder if not entered and host.node.is_dir(daemon.folder) else None
    return host.commands.run([*entered, daemon.binary, *words], check=False, timeout=TIMEOUT, cwd=here)


def _accepted(shown: Result, daemon: RuntimeDaemon) -> str:
    if shown.ok:
        return shown.stdout
    lines = [line for line in (shown.stdout + shown.stderr).splitlines() if line.strip()]
    raise InputError(
        f"{daemon.kind} does not accept {daemon.config}",
        details=lines,
        resolution="repair the file; driverctl changed nothing",
    )
