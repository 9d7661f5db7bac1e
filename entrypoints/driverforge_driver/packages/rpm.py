"""The package file that dnf and zypper fetch. No package manager: they share it.

`dnf download` never looks at a package's signature, and `zypper download` only where the .repo file asks for
it; `verify` always does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core.errors import CommandFailed, InputError
from driverforge_core.printable import on_one_line
from driverforge_driver.packages import PackageAccess, PackageFile, command_evidence, storage_error_or
from driverforge_host.ports import Files, Result, text_of

# rpm of RHEL 8 reports success for a package without any signature, unless it is told what is required. A
# site's macros may leave checks out, too.
CHECK = (
    "rpmkeys",
    "--define=_pkgverify_level signature",
    "--define=_pkgverify_flags 0x0",
    "--checksig",
    "--verbose",
)
# 'Header V4 RSA/SHA256 Signature, key ID fd431d51: OK' in rpm 4;
# 'Header OpenPGP V4 RSA/SHA256 signature, key fingerprint: 5679…: OK' in rpm 6
SIGNATURE = re.compile(
    r"^ +(?:Header )?\S.* signature, key (?:ID|fingerprint:?) (?P<key>[0-9a-f]+): (?P<verdict>\w+)",
    re.IGNORECASE | re.MULTILINE,
)
# the value of a .repo file's gpgkey may go on in the next lines, which are indented
GPGKEY = re.compile(r"^[ \t]*gpgkey[ \t]*=(?P<value>.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
KEY_FILE = re.compile(r"\bfile:(?://)?(?P<path>/[^\s,]+)")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlaces:
    """Where an image has the public keys of those who sign its packages, beside rpm's own database."""

    # a folder of key files
    folder: str
    # the folder of the .repo files, whose `gpgkey` may name further ones
    repositories: str

    @property
    def advice(self) -> str:
        """How a key of the site's own gets there."""
        return (
            f"put its public half into {self.folder}, or name it in the repository's .repo file "
            "(gpgkey=file:///…)"
        )


def verify(access: PackageAccess, paths: Sequence[str], *, places: KeyPlaces, scratch: str) -> None:
    """Raises InputError unless each of these package files has a signature that a known key made.

    A digest proves nothing: who changes a package writes its digests anew. rpm's database counts first. Keys
    of files are imported into a database of their own in the folder `scratch`: most images hold their keys as
    files only, and the image's database stays as it is.
    """
    for path in paths:
        asked = [_check(access, path)]
        if not _is_signed(asked[-1], path) and (keys := key_files(access.files, places)):
            access.files.make_dirs(scratch)
            # One key that this rpm cannot read does not matter to a package that another one signed.
            asked.append(access.ask(["rpmkeys", f"--dbpath={scratch}", "--import", *keys], env={}))
            asked.append(_check(access, path, f"--dbpath={scratch}"))
        if not _is_signed(asked[-1], path):
            raise _not_signed_error(path, places, asked)


def _check(access: PackageAccess, path: str, *options: str) -> Result:
    return access.ask([*CHECK, *options, path], env={})


def _verdicts(checked: Result, path: str) -> dict[str, str]:
    """Key -> rpm's word for its signature."""
    # The first line is the path, and so is a mirror's text.
    said = checked.stdout.removeprefix(f"{path}:")
    return {found["key"]: found["verdict"] for found in SIGNATURE.finditer(said)}


def _is_signed(checked: Result, path: str) -> bool:
    return checked.ok and "OK" in _verdicts(checked, path).values()


def _not_signed_error(path: str, places: KeyPlaces, asked: Sequence[Result]) -> InputError:
    name = on_one_line(path.rpartition("/")[2])
    verdicts = _verdicts(asked[-1], path)
    unknown = [key for key, verdict in verdicts.items() if verdict == "NOKEY"]
    if ": BAD" in asked[-1].stdout:
        brief = f"header package changed after it was signed: {name}"
        step = "nothing of it was used; copy the repository again and empty the caches of proxies"
    elif unknown:
        brief = f"header package signed with a key that this image does not know: {name}, key {unknown[0]}"
        step = f"if the key is the site's own, {places.advice}, then start again"
    else:
        brief = f"header package without a signature that can be verified: {name}"
        step = (
            f"sign it with a key of your own (rpmsign --addsign) and {places.advice}; "
            "or give packages that you have checked yourself with --headers DIR"
        )
    details = [line for result in asked for line in command_evidence(result)]
    return InputError(brief, details=details, resolution=step)


def key_files(files: Files, places: KeyPlaces) -> tuple[str, ...]:
    """The key files of the image, and those that the .repo files name by path."""
    found = [f"{places.folder}/{name}" for name in files.list_dir(places.folder)]
    for name in files.list_dir(places.repositories):
        if name.endswith(".repo"):
            text = text_of(files, f"{places.repositories}/{name}")
            values = " ".join(match["value"] for match in GPGKEY.finditer(text))
            found += [match["path"] for match in KEY_FILE.finditer(values)]
    return tuple(path for path in dict.fromkeys(found) if files.exists(path) and not files.is_dir(path))


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
