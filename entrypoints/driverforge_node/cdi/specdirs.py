"""The spec files of a node, as container runtimes load them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_node.cdi import document
from driverforge_node.cdi.spec import Spec
from driverforge_node.host.ports import Files

FOLDERS = ("/etc/cdi", "/var/run/cdi")  # a later folder beats an earlier one


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """A file in a spec folder; `spec` is None where it is none, and `problems` says why, as 'PATH[:LINE]: what'."""

    path: str
    folder: str
    spec: Spec | None
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Qualified device names: 'nvidia.com/gpu=0'."""
        return tuple(f"{self.spec.kind}={device.name}" for device in self.spec.devices) if self.spec else ()


def load(files: Files, folders: Iterable[str] = FOLDERS) -> tuple[SpecFile, ...]:
    """Every spec file in these folders, the folders' order first. Runtimes look at .json and .yaml only, and not below."""
    found = []
    for folder in dict.fromkeys(files.resolve(folder) for folder in folders):
        names = [name for name in files.list_dir(folder) if name.endswith((".json", ".yaml"))]
        found += [
            load_file(files, f"{folder}/{name}", folder)
            for name in names
            if not files.is_dir(f"{folder}/{name}")
        ]
    return tuple(found)


def load_file(files: Files, path: str, folder: str = "") -> SpecFile:
    try:
        return SpecFile(path=path, folder=folder, spec=document.read(files.read_text(path), path))
    except FileNotFoundError:
        return SpecFile(path=path, folder=folder, spec=None, problems=(f"{path}: there is no such file",))
    except InputError as error:
        return SpecFile(path=path, folder=folder, spec=None, problems=error.details)
    except DriverforgeError as error:
        return SpecFile(
            path=path,
            folder=folder,
            spec=None,
            problems=(f"{path}: {', '.join((error.brief, *error.details))}",),
        )
