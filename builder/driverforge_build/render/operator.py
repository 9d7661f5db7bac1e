"""The operator's image: our own packages and locked wheels on a system's Python.

It holds nothing of the builder and nothing of the node, has no compiler, and runs as nobody. The wheels come
from a folder that the user names, filled by pip from any index; the lock says whether they are right.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Matrix
from driverforge_build.matrix.programcells import OperatorCell
from driverforge_build.render.files import ContextFile
from driverforge_build.render.library import package_files
from driverforge_build.render.programs import Lack, ProgramsSpec, all_or_none, on_system
from driverforge_core import __version__

OWN = ("driverforge_core", "driverforge_oci", "driverforge_kube", "driverforge_operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec(ProgramsSpec):
    """One image. `library` maps paths below /opt/driverforge/lib to files."""

    wheels: Mapping[str, str]
    library: Mapping[str, ContextFile] = field(repr=False)

    name = "driverforge operator"
    template = "operator/Dockerfile.j2"
    programs: ClassVar[tuple[str, ...]] = ("driverforge-operator",)
    repository = "driverforge-operator"


def wheel_of(file: str) -> tuple[str, str]:
    """Name and version in the name of a wheel's file (PEP 427)."""
    name, version = file.split("-")[:2]
    return name, version


def operator_specs(
    cells: Iterable[OperatorCell], matrix: Matrix, lock: Lock, *, given: Given
) -> tuple[OperatorSpec, ...]:
    """The images of `cells`. Raises InputError with everything that is missing or not as locked."""
    return all_or_none("operator", ((cell, _image(cell, matrix, lock, given)) for cell in cells))


def _image(cell: OperatorCell, matrix: Matrix, lock: Lock, given: Given) -> OperatorSpec | list[Lack]:
    system, (wheels, wrong) = on_system(cell, matrix, lock, given), _wheels(cell, given)
    if isinstance(system, Lack) or wrong:
        return [*([system] if isinstance(system, Lack) else []), *wrong]
    own = {
        name: ContextFile(content=content)
        for package in OWN
        for name, content in package_files(package, data=(".yaml",))
    }
    return OperatorSpec(
        **system.values(),
        version=__version__,
        wheels=cell.wheels,
        library={**wheels, **own},
    )


def _wheels(cell: OperatorCell, given: Given) -> tuple[dict[str, ContextFile], list[Lack]]:
    """What is in the wheels, and everything that is wrong with their folder."""
    step = f"--operator-wheels {cell.arch}=DIR (docs/operator-image.md says how to fill it)"
    folder = given.wheels.get(cell.arch, "")
    if not folder:
        return {}, [Lack("no folder with its wheels was named", step)]
    library: dict[str, ContextFile] = {}
    wrong = []
    for name, sha256 in cell.wheels.items():
        path = Path(folder, name)
        if not path.is_file():
            wrong.append(Lack(f"{folder} has no {name}", step))
            continue
        content = path.read_bytes()
        if (found := hashlib.sha256(content).hexdigest()) != sha256:
            wrong.append(Lack(f"{path} has sha256 {found}, the lock says {sha256}", step))
            continue
        library.update(_unpacked(content))
    return library, wrong


def _unpacked(wheel: bytes) -> dict[str, ContextFile]:
    """A wheel's packages and licences; what pip would put elsewhere (`*.data/`), is none of an import's."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return {
            entry.filename: ContextFile(content=archive.read(entry))
            for entry in archive.infolist()
            if not entry.is_dir() and ".data" not in Path(entry.filename).parts[0]
        }
