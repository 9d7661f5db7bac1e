"""NVIDIA's files as they come out of its packages: where they are, and what of them is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_core.errors import InputError
from driverforge_host.ports import Files
from driverforge_toolkit.toolkit.wrapper import BARE, WRAPPED, render_wrapper, wrapper_of

ARTIFACTS = "/artifacts"
LIBRARY_FOLDERS = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")
LIBRARIES = ("libnvidia-container.so.1", "libnvidia-container-go.so.1")
# the hook's name in releases of long ago
LINKS = (("nvidia-container-toolkit", "nvidia-container-runtime-hook"),)
PROGRAMS = (WRAPPED[0], BARE, *WRAPPED[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What a release holds, by names relative to it.

    Copies are (source, name), links (name, target), wrappers (name, script).
    """

    copies: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    wrappers: tuple[tuple[str, str], ...]
    version: str  # of libnvidia-container, as its file name says; '' where it says none


def package_type(node: Files, wanted: str) -> str:
    """'deb' or 'rpm': `wanted`, or with 'auto' what the node's package manager is.

    rpm is looked for first; deb where there is neither.
    """
    if wanted in ("deb", "rpm"):
        return wanted
    return "rpm" if node.exists("/usr/bin/rpm") else "deb"


def source_root(files: Files, node: Files, *, given: str, wanted: str) -> str:
    """The folder with NVIDIA's files.

    `given`, else the one of the node's package type, or the other one where the image has only that.
    """
    if given:
        return given.rstrip("/")
    kind = package_type(node, wanted)
    other = {"deb": "rpm", "rpm": "deb"}[kind]
    only = (
        wanted not in ("deb", "rpm")
        and not files.exists(f"{ARTIFACTS}/{kind}")
        and files.exists(f"{ARTIFACTS}/{other}")
    )
    return f"{ARTIFACTS}/{other if only else kind}"


def find_libraries(files: Files, root: str) -> dict[str, str]:
    """The library files below a source folder, by soname.

    Raises InputError with every file that is missing, libraries and programs.
    """
    found = {}
    missing = []
    for library in LIBRARIES:
        places = [
            f"{root}/{folder}/{library}"
            for folder in LIBRARY_FOLDERS
            if files.exists(f"{root}/{folder}/{library}")
        ]
        if places:
            found[library] = files.resolve(places[0])
        else:
            missing.append(f"{library} in {', '.join(LIBRARY_FOLDERS)}")
    missing += [f"usr/bin/{name}" for name in PROGRAMS if not files.exists(f"{root}/usr/bin/{name}")]
    if missing:
        raise InputError(
            f"{root} does not hold NVIDIA's container toolkit; nothing was changed on the node",
            details=[f"missing: {name}" for name in missing],
            resolution="unpack NVIDIA's packages there (docs/toolkit.md), or name another folder with "
            "--toolkit-source-root",
        )
    return found


def copy_plan(root: str, libraries: Mapping[str, str], *, folder: str, default_runtime: str) -> CopyPlan:
    """What to install from `root`.

    `folder` is INSTALL_DIR/toolkit, by which the wrappers name everything.
    """
    names = {soname: path.rpartition("/")[2] for soname, path in libraries.items()}
    suffix = names.get(LIBRARIES[0], "").partition(".so.")[2]
    return CopyPlan(
        copies=(
            *((path, names[soname]) for soname, path in libraries.items()),
            *((f"{root}/usr/bin/{name}", name if name == BARE else f"{name}.real") for name in PROGRAMS),
        ),
        links=(*((soname, name) for soname, name in names.items() if soname != name), *LINKS),
        wrappers=tuple((name, render_wrapper(wrapper_of(name, folder, default_runtime))) for name in WRAPPED),
        version=suffix if "." in suffix else "",
    )
