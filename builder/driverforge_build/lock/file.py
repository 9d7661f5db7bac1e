"""The lock file: read, merged with what another run wrote meanwhile, and replaced whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from driverforge_build.advice import Given
from driverforge_build.lock.pins import (
    HeaderFact,
    Lock,
    LockedArchive,
    LockedBase,
    LockedKernel,
    LockedPackage,
    LockedRepository,
    Origin,
    TargetLock,
)
from driverforge_build.lock.sound import sha256, size, sound_package, word
from driverforge_build.sharedfile import alone, read_json, replace_text
from driverforge_core.errors import InputError
from driverforge_core.headertree import HeaderDigests

SCHEMA = 1


DEFAULTS = Given()


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


_PARTS = tuple(part.name for part in fields(HeaderDigests))


# one package on one line: a path, a digest, a suite
_LINE = 320


def load_lock(
    path: Path,
    *,
    matrix: Path | None = None,
    select: Sequence[str] = (),
    skip: Sequence[str] = (),
    read: Callable[[Path], bytes] = Path.read_bytes,
) -> Lock:
    """Read a lock file. A missing, damaged or newer file is an InputError that names the command to run.

    `matrix`, `select`, `skip`: what the user's command says; the command that makes a missing lock says the
    same. The one that replaces a damaged lock selects nothing: it makes all of it.
    """
    given = Given(matrix=matrix, lock=path)
    try:
        text = read(path).decode()
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
    return parse_lock(text, given)


def _again(given: Given, otherwise: str = "take the file from version control") -> str:
    """What to do about a file that cannot be read.

    It has to go: `lock` compares what it finds with the pins that are there.
    """
    return f"{otherwise}, or remove it and run: {given.command('lock')}"


def parse_lock(text: str, given: Given = DEFAULTS) -> Lock:
    """The lock in a text; InputError if it is not one, named as the given lock file."""
    name = given.lock
    try:
        document = read_json(text)
        if (schema := document["schema"]) != SCHEMA:
            raise InputError(
                f"{name} has schema {schema}; this program reads schema {SCHEMA}",
                resolution=_again(given, "use the version of driverforge that wrote it"),
            )
        # a former version wrote no archives
        return Lock(
            targets={key: _target(key, value) for key, value in document["targets"].items()},
            archives={key: _archive(key, value) for key, value in document.get("archives", {}).items()},
        )
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name} is not JSON", details=[f"{name}:{error.lineno}: {error.msg}"], resolution=_again(given)
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{name} is damaged", details=[f"{type(error).__name__}: {error}"], resolution=_again(given)
        ) from None


def dump_lock(lock: Lock) -> str:
    """The file's text: the same lock gives the same bytes."""
    targets = {key: _target_document(target) for key, target in lock.targets.items()}
    archives = {key: _archive_document(archive) for key, archive in lock.archives.items()}
    return _render({"schema": SCHEMA, "targets": targets, "archives": archives}, "") + "\n"


def _target(key: str, value: Mapping[str, Any]) -> TargetLock:
    packages = {pin: _package(pin, entry) for pin, entry in value["packages"].items()}
    os_key, _, arch = key.rpartition("-")
    return TargetLock(
        os=os_key,
        arch=arch,
        repositories=tuple(_repository(entry) for entry in value["repositories"]),
        drivers={
            driver: {role: _pinned(pins, packages) for role, pins in roles.items()}
            for driver, roles in value["drivers"].items()
        },
        kernels={release: _kernel(release, entry, packages) for release, entry in value["kernels"].items()},
        header_facts={
            pin: {
                question: HeaderFact(breaks=_answer(fact["breaks"]), found=_text(fact["found"]))
                for question, fact in facts.items()
            }
            for pin, facts in value["header_facts"].items()
        },
        # only with --classes
        header_digests={
            pin: HeaderDigests(**{part: sha256(pin, _text(digests[part])) for part in _PARTS})
            for pin, digests in value.get("header_digests", {}).items()
        },
        without_headers=_texts(value["without_headers"]),
        base=_base(value["base"]) if "base" in value else None,
        images={driver: _base(entry) for driver, entry in value.get("images", {}).items()},
    )


def _kernel(release: str, entry: Mapping[str, Any], packages: Mapping[str, LockedPackage]) -> LockedKernel:
    headers = _pinned(entry["headers"], packages)
    if not headers:
        raise ValueError(f"{release}: it has no headers")
    return LockedKernel(
        release=release,
        flavour=_text(entry["flavour"]),
        compiler=word(release, "compiler", entry["compiler"]),
        headers=headers,
        image=packages[entry["image"]] if entry["image"] else None,
        # a former version pinned the image alone
        modules=_pinned(entry.get("modules", []), packages),
        vendor={driver: _pinned(pins, packages) for driver, pins in entry["vendor"].items()},
    )


def _pinned(pins: object, packages: Mapping[str, LockedPackage]) -> tuple[LockedPackage, ...]:
    return tuple(packages[pin] for pin in _texts(pins))


def _archive(key: str, entry: Mapping[str, Any]) -> LockedArchive:
    version, _, arch = key.rpartition("-")
    url = word(key, "url", entry["url"])
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{key}: {url!r} is no web address")
    if date := entry.get("date", ""):
        datetime.fromisoformat(date)
    return LockedArchive(
        version=word(key, "version", version),
        arch=word(key, "arch", arch),
        url=url,
        sha256=sha256(key, str(entry["sha256"])),
        size=size(key, int(entry["size"])),
        origin=Origin(entry["origin"]),
        source=str(entry["source"]),
        date=date,
        accepted=str(entry.get("accepted", "")),
    )


def _package(pin: str, entry: Mapping[str, Any]) -> LockedPackage:
    name, _, version = pin.partition("=")
    return sound_package(
        LockedPackage(
            name=name,
            version=version,
            arch=entry["arch"],
            path=entry["path"],
            sha256=str(entry["sha256"]),
            size=int(entry["size"]),
            suite=entry["suite"],
        )
    )


def _base(entry: Mapping[str, Any]) -> LockedBase:
    digests = {name: entry[name] for name in ("digest", "index")}
    for name, digest in digests.items():
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"base: {name} {digest!r} is no sha256:<64 hexadecimal digits>")
    return LockedBase(reference=word("base", "reference", entry["reference"]), **digests)


def _repository(entry: Mapping[str, Any]) -> LockedRepository:
    if _text(entry["date"]):
        datetime.fromisoformat(entry["date"])
    return LockedRepository(
        suite=_text(entry["suite"]),
        components=_texts(entry["components"]),
        date=entry["date"],
        valid_until=_text(entry["valid_until"]),
        signed_by=_texts(entry["signed_by"]),
        inrelease=_text(entry["inrelease"]),
        indexes={path: _text(digest) for path, digest in entry["indexes"].items()},
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    """Not a text, which would be a list of its letters."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return tuple(map(_text, value))


def _answer(value: object) -> bool | None:
    """Not "no", which would be true."""
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true, false nor null")
    return value


def _by_key(target: TargetLock) -> dict[str, LockedPackage]:
    """Each package once. Several repositories may have the same file, a subscription's and an open one: what
    a driver takes it from counts before what a kernel does.

    Raises InputError where two files have one name and version.
    """
    of_drivers = [package for roles in target.drivers.values() for role in roles.values() for package in role]
    of_kernels = [
        package
        for kernel in target.kernels.values()
        for packages in (kernel.packages, *kernel.vendor.values())
        for package in packages
    ]
    found: dict[str, LockedPackage] = {}
    for package in (*sorted(of_drivers, key=_place), *sorted(of_kernels, key=_place)):
        known = found.setdefault(package.key, package)
        if known.sha256 != package.sha256:
            raise InputError(
                f"{target.key}: two different packages are called {package.key}, and the lock holds one of a "
                "name",
                details=[f"{one.suite}: {one.path}, sha256 {one.sha256}" for one in (known, package)],
                resolution="take one of the two repositories out of the system's row in the matrix",
            )
    return found


def _place(package: LockedPackage) -> tuple[str, str]:
    return package.suite, package.path


def _target_document(target: TargetLock) -> dict[str, Any]:
    return {
        "repositories": [_repository_document(repository) for repository in target.repositories],
        "packages": {
            package.key: {
                "arch": package.arch,
                "path": package.path,
                "sha256": package.sha256,
                "size": package.size,
                "suite": package.suite,
            }
            for package in _by_key(target).values()
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
                "image": kernel.image.key if kernel.image else "",
                **({"modules": sorted(one.key for one in kernel.modules)} if kernel.modules else {}),
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
        **(
            {"header_digests": {pin: asdict(digests) for pin, digests in target.header_digests.items()}}
            if target.header_digests
            else {}
        ),
        "without_headers": sorted(target.without_headers),
        **({"base": asdict(target.base)} if target.base else {}),
        **(
            {"images": {driver: asdict(image) for driver, image in target.images.items()}}
            if target.images
            else {}
        ),
    }


def _archive_document(archive: LockedArchive) -> dict[str, Any]:
    return {
        "url": archive.url,
        "sha256": archive.sha256,
        "size": archive.size,
        "origin": archive.origin.value,
        "source": archive.source,
        **({"date": archive.date} if archive.date else {}),
        **({"accepted": archive.accepted} if archive.accepted else {}),
    }


def _repository_document(repository: LockedRepository) -> dict[str, Any]:
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
    """JSON with sorted keys. An object or list without objects inside stays on one line while it fits."""
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


def merge_lock(
    path: Path, targets: Iterable[TargetLock], archives: Iterable[LockedArchive] = (), *, writing: bool
) -> bool:
    """Merge targets and archives into the lock file, and write it if `writing`.

    Returns whether they change it.

    The file is read once more: another run may have written its own targets since. Its pins count: a key
    that a former version wrote is no change.
    """
    with alone(path):
        before = load_lock(path) if path.exists() else None
        merged = dump_lock((before or Lock()).with_targets(targets).with_archives(archives))
        changed = before is None or merged != dump_lock(before)
        if changed and writing:
            replace_text(path, merged, option="--lock")
    return changed
