"""What in the files of a build only names the kernel, and which files make use of that name.

Kernels that differ in their name alone share what was compiled for one of them. `nv-linux.h` includes the
header with the release, so that four fifths of the driver's objects read it; one of them uses it.
"""

from __future__ import annotations

import re

from driverforge_core.headertree import NAMES_OF_A_KERNEL

AUTOCONF = "include/generated/autoconf.h"
RELEASE_HEADER = "include/generated/utsrelease.h"
NAME = "@KERNEL@"
_DEFINITION = '#define UTS_RELEASE "{}"'
_RELEASE = re.compile(rb'^#define UTS_RELEASE "([!#-~]+)"$', re.MULTILINE)
# The macro, and what could put its name together: `##` and its digraph, or its first half as a word. Each
# pattern begins with plain letters, which re finds ten times faster than a word's beginning.
_USES_RELEASE = (
    re.compile(rb"UTS(?<!\wUTS)(?:_RELEASE\b|_(?!\w)|\w*\s*(?:##|%:%:))"),
    re.compile(rb"##\s*\w*RELEASE\b"),
    re.compile(rb"%:%:\s*\w*RELEASE\b"),
)


def release_in(header: bytes) -> str:
    """The release that utsrelease.h defines; '' where it does not say it in the plain way."""
    found = _RELEASE.findall(header)
    return found[0].decode() if len(found) == 1 else ""


def uses_release(text: bytes) -> bool:
    """Whether a text may depend on what utsrelease.h defines."""
    return any(pattern.search(text) for pattern in _USES_RELEASE)


def compared(path: str, data: bytes, *, release: str) -> bytes:
    """What of a file counts when two builds are compared: `release` only where the file may make use of it.

    It is '' where it is not known. A utsrelease.h that has another one counts as it is.
    """
    if path.endswith(AUTOCONF):
        return _without_names(data)
    if release and path.endswith(RELEASE_HEADER):
        return data.replace(_DEFINITION.format(release).encode(), _DEFINITION.format(NAME).encode())
    if path.rpartition("/")[0].endswith("/conftest"):
        data = _without_version(data)
    if release and uses_release(data):
        return data + b"\0" + release.encode()
    return data


def _without_names(autoconf: bytes) -> bytes:
    """The definitions of autoconf.h less those that only name the kernel; its comment has the name, too."""
    return b"\n".join(
        line
        for line in autoconf.splitlines()
        if line.startswith(b"#define") and not any(name in line for name in NAMES_OF_A_KERNEL)
    )


def _without_version(conftest: bytes) -> bytes:
    """A header of conftest/ less the comment with the kernel's release that Kbuild puts below it."""
    lines = conftest.split(b"\n")
    return b"\n".join(line for line in lines if not line.startswith(b"// Kernel version:"))
