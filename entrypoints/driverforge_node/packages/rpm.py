"""The package file that dnf and zypper fetch. No package manager: they share it."""

from __future__ import annotations

from driverforge_core.errors import CommandFailed, InputError
from driverforge_node.packages import PackageAccess, PackageFile, command_evidence, storage_error_or

# No pipe: sh would lose the status of rpm2cpio in it.
UNPACK = (
    'rpm2cpio "$1" >"$2/.cpio"'
    ' && cpio --extract --make-directories --quiet --directory "$2" <"$2/.cpio"'
    ' && rm "$2/.cpio"'
)
QUERY = (
    "rpm",
    "--query",
    "--nosignature",
    "--queryformat",
    "%{NAME}\\n%{VERSION}-%{RELEASE}\\n",
    "--package",
)


def extract(access: PackageAccess, path: str, into: str) -> PackageFile:
    """Unpack an RPM (`PackageManager.extract`)."""
    shown = access.commands.run([*QUERY, path], check=False)
    name, _, version = shown.stdout.strip().partition("\n")
    if not shown.ok or not version:
        raise InputError(f"not an RPM package: {path}", details=command_evidence(shown))
    unpacked = access.commands.run(["sh", "-c", UNPACK, "sh", path, into], check=False)
    if not unpacked.ok:
        raise storage_error_or(
            unpacked, CommandFailed(f"cannot unpack {path}", details=command_evidence(unpacked))
        )
    return PackageFile(name=name, version=version, path=path)
