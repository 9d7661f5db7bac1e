"""What dnf and zypper share: the package file."""

from __future__ import annotations

from driverforge_core.errors import CommandFailed, InputError
from driverforge_node.packages import Access, Package, evidence, storage_or

# no pipe: in sh the status of rpm2cpio would be lost in it
UNPACK = 'rpm2cpio "$1" >"$2/.cpio" && cpio --extract --make-directories --quiet --directory "$2" <"$2/.cpio" && rm "$2/.cpio"'
QUERY = (
    "rpm",
    "--query",
    "--nosignature",
    "--queryformat",
    "%{NAME}\\n%{VERSION}-%{RELEASE}\\n",
    "--package",
)


def extract(access: Access, path: str, into: str) -> Package:
    shown = access.commands.run([*QUERY, path], check=False)
    name, _, version = shown.stdout.strip().partition("\n")
    if not shown.ok or not version:
        raise InputError(f"not an RPM package: {path}", details=evidence(shown))
    unpacked = access.commands.run(["sh", "-c", UNPACK, "sh", path, into], check=False)
    if not unpacked.ok:
        raise storage_or(unpacked, CommandFailed(f"cannot unpack {path}", details=evidence(unpacked)))
    return Package(name=name, version=version, path=path)
