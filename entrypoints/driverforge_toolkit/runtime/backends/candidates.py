"""Copies of a daemon's files as they are to be, for its own program to read before they are in force.

They are under /run/driverforge of the node for as long as that takes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from driverforge_host.ports import Host
from driverforge_toolkit.runtime.backends import imports
from driverforge_toolkit.runtime.backends.containerd_config import newest_version
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents, data_of, toml_file
from driverforge_toolkit.runtime.formats.values import Change
from driverforge_toolkit.runtime.model import RuntimeDaemon

FOLDER = "/run/driverforge"
PREFIX = "candidate-"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Copier:
    """Writes copies of changed files, and of those that import them, into one folder."""

    host: Host
    daemon: RuntimeDaemon
    files: Contents
    disk: Contents
    folder: str  # of the node

    def copied(self) -> dict[str, str]:
        """Write the copies, and return where each is, by the path that it stands for.

        The imports of a copy name copies, so that a file that imports a copied one has to be copied too.
        """
        imported = self.imports()
        places: dict[str, str] = {}
        todo = [path for path, names in imported.items() if self._differs(path, names)]
        while todo:
            path = todo.pop()
            if path not in places:
                places[path] = f"{self.folder}/{len(places)}-{path.rpartition('/')[2]}"
                todo += [importer for importer, names in imported.items() if path in names]
        for path, place in places.items():
            file = self.file(path)
            names = [places.get(name, name) for name in imported[path] if name != path]
            if names or imports.declared_imports(file.values, path):
                file = file.edited([Change(path=imports.IMPORTS, value=names)])
            self.host.node.write_atomic(place, file.data or b"", mode=0o600)
        return places

    def file(self, path: str) -> ConfigFile:
        """The file to copy; where it is not there, what the daemon makes of none."""
        file = self.files.get(path)
        if file is not None and file.data is not None:
            return file
        return toml_file(path, b"version = %d\n" % newest_version(self.daemon.version))

    def imports(self) -> dict[str, list[str]]:
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
