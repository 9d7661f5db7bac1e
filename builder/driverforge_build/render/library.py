"""The Python packages that go into an image, taken from this very installation.

No index is asked and no RUN calls pip, so no other version can get in.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

from driverforge_core.errors import InputError

THIRD_PARTY = {
    "h2": "h2",
    "hpack": "hpack",
    "hyperframe": "hyperframe",
    "pynvml": "nvidia-ml-py",
    "tomlrt": "tomlrt",
    "typing_extensions": "typing_extensions",
    "yaml": "PyYAML",
}
"""Import name to distribution.

Pure Python, so that one tree serves every base image and CPU; their licences go along.
"""
DRIVER_IMAGE = (
    "driverforge_core",
    "driverforge_kube",
    "driverforge_host",
    "driverforge_driver",
    "driverctl",
)
"""What a driver image runs: Python 3.10 and the standard library are enough for it."""
TOOLKIT_IMAGE = (*DRIVER_IMAGE, "driverforge_toolkit", *THIRD_PARTY)
"""The image for every operating system also has `driver-manager`, which is a command of the driver half."""
# has a compiled part, and does without it
_ONLY_FASTER = ("yaml",)


def library_files(packages: tuple[str, ...]) -> dict[str, bytes]:
    """Files of packages below /opt/driverforge/lib: path -> content.

    Modules, type markers and licences, and nothing else that lies in the folders. Raises InputError when a
    package is not installed, or is not pure Python.
    """
    files: dict[str, bytes] = {}
    for name in packages:
        files.update(package_files(name))
        if name in THIRD_PARTY:
            files.update(_licences(name, THIRD_PARTY[name]))
    return dict(sorted(files.items()))


def library_versions() -> str:
    """Versions of the third-party packages that go into a toolkit image here, for people to read.

    Such as 'h2 4.4.1, hpack 4.2.0, …'.
    """
    return ", ".join(f"{name} {metadata.version(name)}" for name in THIRD_PARTY.values())


def package_files(name: str, *, data: tuple[str, ...] = ()) -> Iterator[tuple[str, bytes]]:
    """A package's or a module's own files, as below the library's folder.

    `data` are suffixes of files beside the modules. Raises InputError as library_files does.
    """
    spec = find_spec(name)
    if spec is None:
        raise InputError(
            f"the Python package {name} is not installed",
            resolution="pip install '.[build]' in a checkout of driverforge",
        )
    if not spec.submodule_search_locations:
        assert spec.origin is not None
        yield f"{name}.py", Path(spec.origin).read_bytes()
        return
    for folder in map(Path, spec.submodule_search_locations):
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.suffix in {".so", ".pyd"} and name not in _ONLY_FASTER:
                raise InputError(
                    f"the Python package {name} here has compiled parts ({inside}), which fit one machine "
                    f"only",
                    resolution=f"pip install --no-binary {name} --force-reinstall {name}",
                )
            # what an editor or a tool left there is no part of a package
            if (
                path.is_file()
                and not path.name.startswith(".")
                and (path.suffix in (".py", *data) or path.name == "py.typed")
            ):
                yield f"{name}/{inside.as_posix()}", path.read_bytes()


def _licences(name: str, distribution: str) -> Iterator[tuple[str, bytes]]:
    files = [path for path in metadata.files(distribution) or () if ".dist-info" in path.parts[0]]
    found = [
        path for path in files if path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE"))
    ]
    for path in found:
        yield f"licenses/{name}/{path.name}", Path(str(path.locate())).read_bytes()
    if not found:
        yield f"licenses/{name}/LICENSE", _leading_comment(name).encode()


def _leading_comment(name: str) -> str:
    """The licence of a module whose distribution has no file for it."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    lines = Path(spec.origin).read_text(encoding="utf-8").splitlines()
    return "".join(
        f"{line.lstrip('#').strip()}\n" for line in takewhile(lambda line: line.startswith("#"), lines)
    )
