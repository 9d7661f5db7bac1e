"""The driver's libraries below a driver root.

Their version and folders, and the links that programs expect.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from posixpath import basename, dirname

from driverforge_core.errors import Unavailable
from driverforge_host.ports import Files

_MULTIARCH = ("x86_64-linux-gnu", "aarch64-linux-gnu")
FOLDERS = (
    "/usr/lib64",
    *(f"/usr/lib/{arch}" for arch in _MULTIARCH),
    *(f"/usr/lib/{arch}/nvidia/current" for arch in _MULTIARCH),
    "/lib64",
    *(f"/lib/{arch}" for arch in _MULTIARCH),
    *(f"/lib/{arch}/nvidia/current" for arch in _MULTIARCH),
    "/usr/lib",
    "/glibc/lib",
)
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_NAMING_LIBRARIES = ("libcuda.so.", "libnvidia-ml.so.")
_32_BITS = b"\x7fELF\x01"  # how such an ELF file begins (gabi chapter 4)
_LOAD, _DYNAMIC = 1, 2
_NULL, _STRTAB, _SONAME = 0, 5, 14
_MAX_NAME = 256

Read = Callable[[int, int], bytes]  # (offset, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLibraries:
    """A driver's user space. Paths are below its root, links followed."""

    version: str
    folders: tuple[str, ...]
    libraries: tuple[str, ...]


def locate(files: Files, *, folders: Sequence[str] = (), loaded: str = "") -> DriverLibraries:
    """The driver below the root of `files`. Its version is in the name of libcuda, else of libnvidia-ml.

    `folders` are searched before the usual ones. Where several versions are there, the `loaded` one counts.
    Raises Unavailable where there is none.
    """
    where = (*folders, *FOLDERS)
    versions = [found for name in _NAMING_LIBRARIES for found in _versions(files, name, where)]
    if not versions:
        raise Unavailable(
            "no NVIDIA driver libraries found",
            details=[
                (
                    f"neither libcuda.so.VERSION nor libnvidia-ml.so.VERSION below {files.root} in "
                    f"{', '.join(where)}"
                )
            ],
            resolution="wait until the driver is installed there, or name its root "
            "(--driver-root) or folder (--library-search-path)",
        )
    version = loaded if loaded in versions else versions[0]
    # libcuda may be apart from what it loads: Debian's packages do so
    homes = dict.fromkeys(dirname(path) for path in libraries(files, where, f"lib*.so.{version}"))
    return DriverLibraries(version=version, folders=tuple(homes), libraries=_libraries(files, homes, version))


def _versions(files: Files, start: str, folders: Iterable[str]) -> list[str]:
    """Of each library whose name is `start` and a version."""
    names = (basename(path).removeprefix(start) for path in libraries(files, folders, f"{start}*.*"))
    return [version for version in names if _VERSION.fullmatch(version)]


def _libraries(files: Files, homes: Iterable[str], version: str) -> tuple[str, ...]:
    folders = [folder for home in homes for folder in (home, f"{home}/vdpau")]
    # the one library whose name never carries the driver's version
    others = libraries(files, homes, "libnvidia-nvvm70.so.*")
    return tuple(dict.fromkeys([*libraries(files, folders, f"*.so.{version}"), *others]))


def libraries(files: Files, folders: Iterable[str], pattern: str) -> Iterator[str]:
    """Files whose name fits `pattern`, links followed, but for libraries of 32 bits."""
    for folder in folders:
        for name in files.list_dir(folder):
            if fnmatchcase(name, pattern) and _has_64_bits(files, f"{folder}/{name}"):
                yield files.resolve(f"{folder}/{name}")


def _has_64_bits(files: Files, path: str) -> bool:
    """False also for what is no file."""
    if files.is_dir(path) or not files.exists(path):
        return False
    return files.read_part(path, 0, len(_32_BITS)) != _32_BITS


def symlinks(files: Files, libraries: Iterable[str]) -> tuple[str, ...]:
    """Links beside the libraries, as 'TARGET::LINK' of the create-symlinks hook."""
    links = (link for path in libraries for link in (*_expected_links(path), *_soname_links(files, path)))
    return tuple(dict.fromkeys(links))


def _expected_links(path: str) -> tuple[str, ...]:
    """Names that programs open although no package need make them."""
    folder, name = dirname(path), basename(path)
    if fnmatchcase(name, "libcuda.so.*.*"):
        return (f"libcuda.so.1::{folder}/libcuda.so",)
    if fnmatchcase(name, "libGLX_nvidia.so.*.*"):
        return (f"{name}::{folder}/libGLX_indirect.so.0",)
    if fnmatchcase(name, "libnvidia-opticalflow.so.*.*"):
        return (f"libnvidia-opticalflow.so.1::{folder}/libnvidia-opticalflow.so",)
    return ()


def _soname_links(files: Files, path: str) -> Iterator[str]:
    """The links that the driver's own packages made: SONAME and development name."""
    folder, name = dirname(path), basename(path)
    if not fnmatchcase(name, "*.so.*.*"):
        return
    found = soname(lambda offset, size: files.read_part(path, offset, size))
    # no library of this architecture: its links are left to ldconfig
    if found is None:
        return
    target = found or name
    if target != name and files.is_link(f"{folder}/{target}"):
        yield f"{name}::{folder}/{target}"
    plain = so_name(target)
    if plain not in ("", target) and files.is_link(f"{folder}/{plain}"):
        yield f"{target}::{folder}/{plain}"


def so_name(name: str) -> str:
    """'libcuda.so' of 'libcuda.so.1'; '' where the name has no '.so'."""
    before, found, _ = f"{name}.".rpartition(".so.")
    return before + ".so" if found else ""


def soname(read: Read) -> str | None:
    """DT_SONAME of a shared library (ELF, gabi chapter 5), from the few parts of the file that hold it.

    '' where the library has none, None for what is no library that we can read: read are 64-bit little-endian
    ELF files with a dynamic section.
    """
    try:
        return _soname(read)
    except struct.error:
        return None


def _soname(read: Read) -> str | None:
    head = read(0, 64)
    if head[:6] != b"\x7fELF\x02\x01":
        return None
    (offset,) = struct.unpack_from("<Q", head, 0x20)
    size, count = struct.unpack_from("<HH", head, 0x36)
    loads, dynamic = [], None
    for index in range(count):
        kind, _, at, address, _, in_file = struct.unpack_from("<IIQQQQ", read(offset + index * size, size))
        if kind == _LOAD:
            loads.append((address, at, in_file))
        elif kind == _DYNAMIC:
            dynamic = read(at, in_file)
    if dynamic is None:
        return None
    entries = dict(_entries(dynamic))
    if _SONAME not in entries:
        return ""
    names = _file_offset(entries.get(_STRTAB, 0), loads)
    return (
        None
        if names is None
        else read(names + entries[_SONAME], _MAX_NAME).partition(b"\0")[0].decode("ascii", "replace")
    )


def _entries(dynamic: bytes) -> Iterator[tuple[int, int]]:
    for tag, value in struct.iter_unpack("<qQ", dynamic[: len(dynamic) // 16 * 16]):
        if tag == _NULL:
            return
        yield tag, value


def _file_offset(address: int, loads: list[tuple[int, int, int]]) -> int | None:
    return next((at + address - start for start, at, size in loads if start <= address < start + size), None)
