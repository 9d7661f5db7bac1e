"""`driverforge.lock.json`: every download of every cell, pinned by pool path and sha256, and where that knowledge comes from.

The file is made by `driverforge lock`, committed beside a site's matrix, and read by `plan`, `generate` and `build`, which need no
repository then. Its bytes are a function of the repositories' content alone: keys sorted, one package a line, no date of the run.

    targets.<os>-<arch>.repositories   suites, with the date of their InRelease, who signed it and the sha256 of each index
    targets.<os>-<arch>.packages       "name=version" -> pool path, sha256, size, suite; everything below names entries of this table
    targets.<os>-<arch>.drivers        driver version -> role -> package names (roles: ROLES)
    targets.<os>-<arch>.kernels        kernel release -> headers, image, compiler
    targets.<os>-<arch>.header_facts   header package -> a probe's question -> answer, and the line of the header that says so
    targets.<os>-<arch>.without_headers   releases whose image is still published and whose headers are not
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from driverforge_build.advice import Given
from driverforge_core.errors import InputError

SCHEMA = 1
DEFAULTS = Given()
ROLES = ("firmware", "source", "tools", "toolchain", "userspace")
"""What a driver's packages are for. `source` and `firmware` are extracted and stand alone. `tools` is whole: what an image of any
kind has, with all dependencies. `userspace`, and `toolchain` (compiler, make, what the kernel's build programs link), each are
whole together with `tools`."""

_WORD = re.compile(r"[A-Za-z0-9._+~:/@%^=,{}-]+")
_LINE = 320  # one package on one line: a path, a digest, a suite


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One .deb. `path` is below the archive that serves `suite`: the security suite has an archive of its own. `size` in bytes."""

    name: str
    version: str
    arch: str
    path: str
    sha256: str
    size: int
    suite: str

    @property
    def key(self) -> str:
        return f"{self.name}={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """One signed suite. `date` and `valid_until` are UTC, ISO 8601; `signed_by` key fingerprints; digests are hex sha256."""

    suite: str
    components: tuple[str, ...]
    date: str
    valid_until: str
    signed_by: tuple[str, ...]
    inrelease: str
    indexes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFact:
    """A probe's answer about a header tree: whether drivers that the probe concerns fail to compile, None where it cannot say.

    `found` is the evidence, 'include/linux/pci.h:1460: int pci_resize_resource(...)'.
    """

    breaks: bool | None
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedKernel:
    """What a module build for one kernel release downloads. `compiler` is the command's name (gcc-12) that the headers ask for.

    `vendor` maps a driver version to the packages with finished modules, where the distribution makes them.
    """

    release: str
    flavour: str
    compiler: str
    headers: tuple[LockedPackage, ...]
    image: LockedPackage
    vendor: Mapping[str, tuple[LockedPackage, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLock:
    """All pins of one OS and architecture. `synthetic`: made up to render golden files, refused by everything that downloads."""

    os: str
    arch: str
    synthetic: bool = False
    repositories: tuple[Repository, ...] = ()
    drivers: Mapping[str, Mapping[str, tuple[LockedPackage, ...]]] = field(default_factory=dict)
    kernels: Mapping[str, LockedKernel] = field(default_factory=dict)
    header_facts: Mapping[str, Mapping[str, HeaderFact]] = field(default_factory=dict)
    without_headers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.os}-{self.arch}"

    def facts(self, kernel: LockedKernel) -> dict[str, HeaderFact]:
        """Question to answer, of all header packages of a kernel."""
        return {
            question: fact
            for package in kernel.headers
            for question, fact in self.header_facts.get(package.key, {}).items()
        }

    def suite(self, name: str) -> Repository | None:
        return next((repository for repository in self.repositories if repository.suite == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    targets: Mapping[str, TargetLock] = field(default_factory=dict)

    def target(self, os_key: str, arch: str) -> TargetLock | None:
        return self.targets.get(f"{os_key}-{arch}")

    def with_targets(self, targets: Iterable[TargetLock]) -> Lock:
        """This lock with some targets replaced or added; the others stay as they are."""
        return Lock(targets={**self.targets, **{target.key: target for target in targets}})


def load(
    path: Path, *, matrix: Path | None = None, select: Sequence[str] = (), skip: Sequence[str] = ()
) -> Lock:
    """Read a lock file. A missing, damaged or newer file is an InputError that names the command to run.

    `matrix`, `select`, `skip`: what the user's command says; the command that makes a missing lock says the same. The one that replaces
    a damaged lock selects nothing: it makes all of it.
    """
    given = Given(matrix=matrix, lock=path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        command = given.command("lock", select=select, skip=skip)
        raise InputError(
            f"there is no lock file {path}",
            resolution=f"{command}   (finds kernels and packages in signed repositories and pins them)",
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text",
            details=[f"{path}: byte {error.start}: {error.reason}"],
            resolution=_again(given),
        ) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}",
            resolution="give yourself the right to read it, or name another with --lock",
        ) from error
    return parse(text, given)


def _again(given: Given, otherwise: str = "take the file from version control") -> str:
    """What to do about a file that cannot be read. It has to go: `lock` compares what it finds with the pins that are there."""
    return f"{otherwise}, or remove it and run: {given.command('lock')}"


def parse(text: str, given: Given = DEFAULTS) -> Lock:
    """The lock in a text; InputError if it is not one, named as the given lock file."""
    name = given.lock
    try:
        document = json.loads(text)
        if (schema := document["schema"]) != SCHEMA:
            raise InputError(
                f"{name} has schema {schema}; this program reads schema {SCHEMA}",
                resolution=_again(given, "use the version of driverforge that wrote it"),
            )
        return Lock(targets={key: _target(key, value) for key, value in document["targets"].items()})
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name} is not JSON", details=[f"{name}:{error.lineno}: {error.msg}"], resolution=_again(given)
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{name} is damaged", details=[f"{type(error).__name__}: {error}"], resolution=_again(given)
        ) from None


def dump(lock: Lock) -> str:
    """The file's text: the same lock gives the same bytes."""
    targets = {key: _target_document(target) for key, target in lock.targets.items()}
    return _render({"schema": SCHEMA, "targets": targets}, "") + "\n"


def _target(key: str, value: Mapping[str, Any]) -> TargetLock:
    packages = {pin: _package(pin, entry) for pin, entry in value["packages"].items()}
    os_key, _, arch = key.rpartition("-")
    return TargetLock(
        os=os_key,
        arch=arch,
        synthetic=bool(value["synthetic"]),
        repositories=tuple(_repository(entry) for entry in value["repositories"]),
        drivers={
            driver: {role: tuple(packages[pin] for pin in pins) for role, pins in roles.items()}
            for driver, roles in value["drivers"].items()
        },
        kernels={
            release: LockedKernel(
                release=release,
                flavour=entry["flavour"],
                compiler=_word(release, "compiler", entry["compiler"]),
                headers=tuple(packages[pin] for pin in entry["headers"]),
                image=packages[entry["image"]],
                vendor={
                    driver: tuple(packages[pin] for pin in pins) for driver, pins in entry["vendor"].items()
                },
            )
            for release, entry in value["kernels"].items()
        },
        header_facts={
            pin: {
                question: HeaderFact(breaks=fact["breaks"], found=fact["found"])
                for question, fact in facts.items()
            }
            for pin, facts in value["header_facts"].items()
        },
        without_headers=tuple(value["without_headers"]),
    )


def _package(pin: str, entry: Mapping[str, Any]) -> LockedPackage:
    name, _, version = pin.partition("=")
    sha256 = str(entry["sha256"])
    if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise ValueError(f"{pin}: sha256 {sha256!r} is not 64 hexadecimal digits")
    path = _word(pin, "path", entry["path"])
    if ".." in path.split("/"):
        raise ValueError(f"{pin}: the path {path!r} leaves the archive")
    if (size := int(entry["size"])) < 0:
        raise ValueError(f"{pin}: the size {size} is less than nothing")
    return LockedPackage(
        name=_word(pin, "name", name),
        version=_word(pin, "version", version),
        arch=_word(pin, "arch", entry["arch"]),
        path=path,
        sha256=sha256,
        size=size,
        suite=_word(pin, "suite", entry["suite"]),
    )


def _word(where: str, what: str, value: object) -> str:
    """A text that may stand in a line of a Dockerfile or of a list of pins: these are read by a shell, word by word."""
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise ValueError(
            f"{where}: {what} {value!r} is no word of letters, digits and . _ + ~ - : / @ % ^ = , {{ }}"
        )
    return value


def _repository(entry: Mapping[str, Any]) -> Repository:
    if entry["date"]:
        datetime.fromisoformat(entry["date"])
    return Repository(
        suite=entry["suite"],
        components=tuple(entry["components"]),
        date=entry["date"],
        valid_until=entry["valid_until"],
        signed_by=tuple(entry["signed_by"]),
        inrelease=entry["inrelease"],
        indexes=dict(entry["indexes"]),
    )


def _target_document(target: TargetLock) -> dict[str, Any]:
    named = [package for roles in target.drivers.values() for role in roles.values() for package in role]
    for kernel in target.kernels.values():
        named += [
            *kernel.headers,
            kernel.image,
            *(package for packages in kernel.vendor.values() for package in packages),
        ]
    return {
        "synthetic": target.synthetic,
        "repositories": [_repository_document(repository) for repository in target.repositories],
        "packages": {
            package.key: {
                "arch": package.arch,
                "path": package.path,
                "sha256": package.sha256,
                "size": package.size,
                "suite": package.suite,
            }
            for package in named
        },
        "drivers": {
            driver: {role: sorted(package.key for package in packages) for role, packages in roles.items()}
            for driver, roles in target.drivers.items()
        },
        "kernels": {
            release: {
                "flavour": kernel.flavour,
                "compiler": kernel.compiler,
                "headers": sorted(package.key for package in kernel.headers),
                "image": kernel.image.key,
                "vendor": {
                    driver: sorted(package.key for package in packages)
                    for driver, packages in kernel.vendor.items()
                },
            }
            for release, kernel in target.kernels.items()
        },
        "header_facts": {
            pin: {question: {"breaks": fact.breaks, "found": fact.found} for question, fact in facts.items()}
            for pin, facts in target.header_facts.items()
        },
        "without_headers": sorted(target.without_headers),
    }


def _repository_document(repository: Repository) -> dict[str, Any]:
    return {
        "suite": repository.suite,
        "components": list(repository.components),
        "date": repository.date,
        "valid_until": repository.valid_until,
        "signed_by": sorted(repository.signed_by),
        "inrelease": repository.inrelease,
        "indexes": dict(repository.indexes),
    }


def _render(value: Any, indent: str) -> str:
    """JSON with sorted keys; an object or list without objects inside stays on one line as long as it fits."""
    children: list[Any] = (
        list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    )
    flat = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if not any(isinstance(child, (dict, list)) for child in children) and (
        not children or len(flat) + len(indent) <= _LINE
    ):
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        lines = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {_render(value[key], inner)}"
            for key in sorted(value)
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _render(child, inner) for child in value) + f"\n{indent}]"
