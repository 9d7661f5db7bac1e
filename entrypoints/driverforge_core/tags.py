"""Tags of driver images, read and written.

    [<commit>-]<driver>-<os>                  NVIDIA's, compiles on the node: [06a208ca-]595.91.07-ubuntu24.04
    [<commit>-]<branch>-<kernel>-<os>         NVIDIA's, modules inside: 580-6.8.0-1046-azure-fde-ubuntu24.04
    <driver>-<kernel>-<os>                    so on RHEL: 550.54.14-5.14.0-284.54.1.el9_2.x86_64-rhcos4.15
    <driver>[-<kernel>]-<os>-r<revision>      ours, never moved: 535.261.03-6.1.0-50-cloud-amd64-debian12-r1

A tag has no '+' (OCI distribution spec, "Pulling manifests"), so a kernel's '+' is written '_'. Reading turns
'_' back only where distributions write '+': before debN, bpo, 64k, rt and debug; in 'el9_2' it stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId

_LEGAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_COMMIT = re.compile(r"[0-9a-f]{8}")
_REVISION = re.compile(r"[0-9a-f]{1,64}")
# any other OS has no hyphen; before the OS stands a kernel's flavour, which does
_HYPHENATED = (
    "sl-micro",
    "opensuse-leap",
)
_OS = rf"(?:{'|'.join(_HYPHENATED)}|[a-z_]+[a-z])\d+(?:\.\d+)*"
_TAG = re.compile(
    r"(?:(?P<commit>[0-9a-f]{8})-)?"
    r"(?P<version>[1-9]\d{1,3}(?:\.\d+){0,3})"
    r"(?:-(?P<kernel>[A-Za-z0-9][A-Za-z0-9._-]*?))??"
    rf"-(?P<os>{_OS})"
    r"(?:-r(?P<revision>[0-9a-f]{1,64}))?",
    re.ASCII,
)
_PLUS = re.compile(r"_(?=(?:deb\d|(?:bpo|64k|rt|debug)(?![A-Za-z0-9])))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTag:
    """A tag's parts.

    `version` is a branch (int) or a full version. `kernel` is None where the node compiles. `os` is OsId.tag.
    With `revision` the tag is immutable and has a full version. Raises InputError where the parts make no
    legal tag.
    """

    version: DriverVersion | int
    os: str
    kernel: KernelRelease | None = None
    revision: str = ""
    commit: str = ""

    def __post_init__(self) -> None:
        problems = []
        if not re.fullmatch(_OS, self.os, re.ASCII) or re.fullmatch(r"r[0-9a-f]+", self.os):
            problems.append(f"{self.os!r} is no OS, e.g. debian12")
        if self.revision and not (
            _REVISION.fullmatch(self.revision) and isinstance(self.version, DriverVersion)
        ):
            problems.append("a revision is hexadecimal and stands after a full driver version")
        if self.commit and (self.revision or not _COMMIT.fullmatch(self.commit)):
            problems.append("a commit is 8 hexadecimal digits, and is not in an immutable tag")
        if not _LEGAL.fullmatch(str(self)):
            problems.append("a tag has at most 128 characters: letters, digits, _ . -")
        if problems:
            raise InputError(f"{self} is not an image tag", details=problems)

    def __str__(self) -> str:
        parts = [
            self.commit,
            _version_text(self.version),
            kernel_text(self.kernel) if self.kernel else "",
            self.os,
        ]
        return "-".join(filter(None, [*parts, f"r{self.revision}" if self.revision else ""]))

    @property
    def branch(self) -> int:
        return self.version if isinstance(self.version, int) else self.version.branch

    @classmethod
    def parse(cls, text: str) -> ImageTag:
        """Read a tag of any of the four kinds; InputError for other tags."""
        found = _TAG.fullmatch(text)
        if not found:
            raise InputError(
                f"{text!r} is not the tag of a driver image",
                resolution="expected <driver>-<os>, <branch>-<kernel>-<os> or one of ours, e.g. "
                "535.261.03-debian12",
            )
        version = found["version"]
        return cls(
            version=DriverVersion(version) if "." in version else int(version),
            os=found["os"],
            kernel=KernelRelease.parse(_PLUS.sub("+", found["kernel"])) if found["kernel"] else None,
            revision=found["revision"] or "",
            commit=found["commit"] or "",
        )


def jit_tag(version: DriverVersion | int, os: OsId) -> ImageTag:
    """The moving tag of an image that compiles on the node."""
    return ImageTag(version=version, os=os.tag)


def precompiled_tag(version: DriverVersion | int, kernel: KernelRelease, os: OsId) -> ImageTag:
    """The moving tag of an image with modules for one kernel.

    Ubuntu's convention is the branch, RHEL's the full version.
    """
    return ImageTag(version=version, kernel=kernel, os=os.tag)


def immutable_tag(
    version: DriverVersion, os: OsId, *, revision: str, kernel: KernelRelease | None = None
) -> ImageTag:
    """The tag that is written once; `revision` is a counter or a digest, in hexadecimal digits."""
    return ImageTag(version=version, kernel=kernel, os=os.tag, revision=revision)


def kernel_text(kernel: KernelRelease) -> str:
    """A release as tags write it.

    Where a release has a '+' of another kind, compare these texts, not the parsed releases.
    """
    return as_in_tags(kernel.text)


def as_in_tags(text: str) -> str:
    """A text that may have a '+' or a '~', without them."""
    return text.replace("+", "_").replace("~", "_")


def _version_text(version: DriverVersion | int) -> str:
    return str(version) if isinstance(version, int) else version.without_grid
